"""What all wires share: fitting a message to a wire, encoding, streams, cache marks, thinking."""

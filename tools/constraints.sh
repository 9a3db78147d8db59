#!/usr/bin/env bash
# Resolves the newest versions for the oldest Python we support and writes the constraints files.
# Then run the tests with every supported Python before committing them. PYTHON should be the oldest that people have,
# Debian 12's 3.11.2: some packages ask for 3.11.5.
set -euo pipefail
cd "$(dirname "$0")/.."

freeze() { # FILE TITLE PIP-ARGUMENT...
    local file=$1 title=$2 scratch
    shift 2
    scratch=$(mktemp -d)
    "${PYTHON:-python3.11}" -m venv "$scratch"
    "$scratch/bin/python" -m pip --disable-pip-version-check -qq install "$@"
    {
        echo "# $title, for Python 3.11 to 3.14. Written by: make constraints"
        "$scratch/bin/python" -m pip --disable-pip-version-check freeze --exclude palaver --exclude-editable
    } >"$scratch/frozen"
    cp "$scratch/frozen" "$file"
    rm -rf "$scratch"
    echo "$file: $(grep -c == "$file") versions"
}

freeze constraints.txt "The versions that are tested" --editable '.[dev]'
freeze bench/constraints.txt "The versions that are measured against" --editable . --requirement bench/peers.txt
freeze tests/transcripts/peers/constraints.txt "The versions that own the formats" --editable . \
    --requirement tests/transcripts/peers/requirements.txt

"""The service's own schema, from botocore: the requests that it accepts, and how it reads a response."""

from typing import Any

import botocore.loaders
import botocore.model
import botocore.parsers
import botocore.validate

_MODEL = botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2"))
_CONVERSE = _MODEL.operation_model("Converse")


def refusal(body: dict[str, Any]) -> str:
    """Return the schema's objection to a request body; empty without one."""
    asked = {"modelId": "anthropic.claude-3-haiku-20240307-v1:0", **body}
    return botocore.validate.ParamValidator().validate(asked, _CONVERSE.input_shape).generate_report()


def parsed(body: bytes) -> dict[str, Any]:
    """Return a response as the official client reads it."""
    parser = botocore.parsers.create_parser("rest-json")
    return parser.parse({"body": body, "headers": {}, "status_code": 200}, _CONVERSE.output_shape)

"""A part whose extra is not installed says what to install."""

import subprocess
import sys

import pytest

PARTS = {
    "from palaver.serve.ui import AiSdkEndpoint": ("starlette", "serve"),
    "from palaver.serve.http import HttpApp": ("starlette", "serve"),
    "from palaver.serve.mcp import McpServer": ("mcp", "mcp"),
    "from palaver.agent.mcp_session import check_installed; check_installed()": ("mcp", "mcp"),
    "from palaver.agent import Tracing; Tracing()": ("opentelemetry", "otel"),
    "from palaver.gateway import gateway_app": ("starlette", "gateway"),
    "import palaver.serve.nats": ("nats", "nats"),
    "import palaver.serve.a2a": ("a2a", "a2a"),
    "import palaver.store.postgres": ("psycopg", "postgres"),
    "from palaver.cli.folder_watch import changes; changes(['.'])": ("watchfiles", "watch"),
    "from palaver.tokens.tokenizers import Tiktoken; Tiktoken('o200k_base')": ("tiktoken", "tokenizers"),
}


@pytest.mark.parametrize("code", PARTS)
@pytest.mark.share(3)
def test_a_missing_package_is_one_clear_error(code):
    package, extra = PARTS[code]
    script = f"""
import sys
sys.modules[{package!r}] = None
from palaver.core.errors import MissingPackageError, PalaverError
try:
    {code.replace("; ", chr(10) + "    ")}
except ImportError as error:
    assert isinstance(error, MissingPackageError) and isinstance(error, PalaverError)
    print(error.name, error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.startswith(package)
    assert f"pip install 'palaver[{extra}]', or pip install -e '.[{extra}]' in a clone" in ran.stdout

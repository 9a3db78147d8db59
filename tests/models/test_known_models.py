"""The models that our own pages, examples and demonstrations name are in the catalogue."""

import re
from pathlib import Path

from palaver.models import providers
from palaver.models.catalogue import catalogue

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(
    rf"(?:[\"“`]|-m |--model )({'|'.join(map(re.escape, providers.names()))})/([A-Za-z0-9][\w.:/-]*\w)(?![\w-]*[…*])"
)
OWN_SERVERS = {"ollama", "vllm", "llamacpp", "lmstudio", "openrouter"}
"""Servers on one's own machine, and a router: what they hold is named by others."""
PLACEHOLDERS = re.compile(r"^(x|m|id|a|b|name|model|gpt-oss-20b)$")


def pages():
    for pattern in ("README.md", "docs/**/*.md", "examples/*.py", "demo/*.py", "src/palaver/cli/*.py"):
        for page in ROOT.glob(pattern):
            if not {"_build", "adr", "spec"} & set(page.relative_to(ROOT).parts):
                yield page


def test_every_model_that_we_name_is_in_the_catalogue():
    named = {
        (provider, model, page.relative_to(ROOT).as_posix())
        for page in pages()
        for provider, model in NAMED.findall(page.read_text("utf-8"))
        if provider not in OWN_SERVERS and not PLACEHOLDERS.match(model)
    }
    assert len(named) > 10
    unknown = sorted(f"{page}: {provider}/{model}" for provider, model, page in named if not found(provider, model))
    assert not unknown


def found(provider, model):
    return catalogue().find(provider, model) is not None


def test_every_row_has_a_source_and_the_day_on_which_it_was_read():
    assert all(card.source.startswith("https://") and card.checked for card in catalogue().cards)

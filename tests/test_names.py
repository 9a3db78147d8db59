"""Public names and modules use the words of docs/reference/names.md: no gerunds, and no words that were replaced."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "docs" / "reference" / "api.lock"
SOURCE = ROOT / "src" / "palaver"

# Words that end in -ing and are no gerunds here. Each has its reason.
NOUNS = {
    "accounting": "noun of the field: token accounting",
    "encoding": "noun: the encoding of text",
    "logging": "noun: Python's module",
    "missing": "adjective: what is not there",
    "pending": "adjective: pending approvals",
    "reasoning": "noun of the field: a model's reasoning",
    "recording": "noun of the field: a stored exchange",
    "setting": "noun: an option",
    "settings": "noun: options",
    "streaming": "noun of the field: an answer in pieces",
    "string": "noun: text",
    "testing": "noun: the package for tests",
    "thinking": "noun of the field: what Anthropic and others call reasoning",
    "spending": "noun of the field: what a run has used, in tokens and money",
    "tracing": "noun of the field: OpenTelemetry",
    "warning": "noun: what Python issues",
}

# Words that told a story, and what to write in their place.
REPLACED = {
    "accent": "variant",
    "careful": "slow_path",
    "carrying": "extension_slot",
    "cell": "shared_value",
    "desk": "dispatcher",
    "dialect": "transcript_format",
    "drift": "unknown_fields",
    "front": "http",
    "happened": "event_text",
    "harmless": "sanitize",
    "held": "stored, pending",
    "kept": "stored, pending",
    "lane": "client_queue",
    "lanes": "client_queues",
    "limiting": "truncation",
    "loose": "lenient_arguments",
    "narrate": "replay_events",
    "patience": "timeout",
    "recalling": "history_search",
    "respeaking": "transcript_io",
    "said": "text",
    "sat": "started",
    "seat": "agent_session",
    "sight": "detection",
    "sighting": "detection",
    "speech": "capabilities",
    "spilling": "offload",
    "spoken": "transcript_input",
    "tell": "publish",
    "telling": "renderer",
    "told": "emitted, text",
    "ways": "delta_writers",
    "weighing": "token_budget",
}

# Words that say nothing as the name of a module, though they may be part of another name.
REPLACED_MODULES = {
    "given": "validation",
    "handover": "navigation_tools",
    "place": "call_context",
    "words": "search_text",
}


# Names that are still to be renamed, each with the package that owns it. Delete an entry with its rename.
def words(name: str) -> list[str]:
    """``PendingApprovals`` and ``pending_approvals`` are both ``["pending", "approvals"]``."""
    return [each.lower() for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def complaints(name: str, *, module: bool = False) -> list[str]:
    """What is wrong with one name."""
    found = []
    for word in words(name):
        if word.endswith("ing") and len(word) > 5 and word not in NOUNS:
            found.append(f"{name}: {word!r} is a gerund")
        if word in REPLACED:
            found.append(f"{name}: write {REPLACED[word]} for {word!r}")
    if module and name in REPLACED_MODULES:
        found.append(f"{name}: write {REPLACED_MODULES[name]}")
    return found


def public_names(lock: str) -> list[str]:
    """The dotted names of api.lock, without signatures and types."""
    rows = [line.split(None, 2) for line in lock.splitlines() if line and not line.startswith("#")]
    return [re.split(r"[(:]", row[1], maxsplit=1)[0] for row in rows]


def modules() -> list[str]:
    """The dotted names of all modules and packages."""
    paths = sorted(SOURCE.rglob("*.py"))
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in paths]


def unexpected(names: dict[str, list[str]]) -> list[str]:
    return [each for found in names.values() for each in found]


def test_public_names_are_words_of_the_field():
    names = {name: complaints(name.rpartition(".")[2]) for name in public_names(LOCK.read_text("utf-8"))}
    assert len(names) > 500
    assert not unexpected(names)


def test_modules_are_words_of_the_field():
    names = {name: complaints(name.rpartition(".")[2], module=True) for name in modules()}
    assert len(names) > 200
    assert not unexpected(names)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("Compacting", True),
        ("compacting", True),
        ("run_telling", True),
        ("Seat", True),
        ("LocalDesk", True),
        ("what_was_said", True),
        ("PendingApprovals", False),
        ("Reasoning", False),
        ("ToolString", False),
        ("dispatcher", False),
        ("storytelling", True),
    ],
)
def test_a_gerund_and_a_replaced_word_are_found(name, bad):
    assert bool(complaints(name)) == bad


def test_a_module_that_says_nothing_is_found():
    assert complaints("place", module=True)
    assert not complaints("place")


def test_names_are_read_without_their_signatures():
    lock = "# head\nstable        palaver.user(*content: str) -> X\nexperimental  palaver.store.Hit.entry: Entry [1]\n"
    assert public_names(lock) == ["palaver.user", "palaver.store.Hit.entry"]


def test_the_glossary_is_linked_and_explains_the_words_in_use():
    assert re.search(r"^names$", (ROOT / "docs" / "reference" / "index.md").read_text("utf-8"), re.MULTILINE)
    glossary = (ROOT / "docs" / "reference" / "names.md").read_text("utf-8")
    for word in (
        "wire",
        "variant",
        "receipt",
        "thread",
        "branch",
        "store",
        "run",
        "middleware",
        "approval",
        "dispatcher",
    ):
        assert f"| {word} |" in glossary, word

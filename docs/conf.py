"""Sphinx settings."""

from importlib.metadata import version as installed_version
from pathlib import Path

project = "Palaver"
author = "The Palaver authors"
copyright = "2026, The Palaver authors"  # noqa: A001 (the name Sphinx reads)
version = release = installed_version("palaver")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "adr/template.md"]
nitpicky = False  # type names in signatures come from msgspec and the standard library
suppress_warnings = ["ref.python"]  # the tag in `Annotated[…, ByTag("role")]` is text, not a name to link to

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# Written out, these unions fill half a page each.
autodoc_type_aliases = {name: name for name in ("PromptInput", "Input", "Message", "AnyPart", "UserPart", "AnyTool")}

html_theme = "furo"
html_title = f"Palaver {release}"
html_search_scorer = str(Path(__file__).with_name("scorer.js"))

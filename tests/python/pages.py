"""The pages of the repository, as tests read them: their snippets, and where their links lead."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def snippets(page: str, language: str = "python") -> list[str]:
    """The pieces of code of a page, each at the line that it has there, so that tracebacks name it."""
    text = (ROOT / page).read_text()
    found = (match for match in _BLOCK.finditer(text) if match[2] == language)
    return ["\n" * text.count("\n", 0, match.start(3)) + textwrap.dedent(match[3]) for match in found]


def links(page: str) -> list[str]:
    """The targets of a page's links, but for those that lead to another host."""
    prose = _BLOCK.sub("", (ROOT / page).read_text())
    return [link for link in _LINK.findall(prose) if "://" not in link]


def anchors(page: str) -> set[str]:
    """The anchors that a page's headings have where the repository is shown."""
    prose = _BLOCK.sub("", (ROOT / page).read_text())
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in words}

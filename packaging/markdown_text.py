"""Parts of a generated page in Markdown: its head, tables, headings with anchors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc


def page(title: str, introduction: str, parts: Iterable[str], *, searched: bool = True) -> str:
    """Return a page.

    Args:
        searched: the search of the site finds the page.
    """
    head = "" if searched else "---\nsearch:\n  exclude: true\n---\n\n"
    note = "<!-- Made by `make generated`; do not edit. -->"
    return head + "\n\n".join([f"# {title}", note, cleandoc(introduction), *parts]) + "\n"


def heading(level: int, text: str, anchor: str) -> str:
    """Return a heading whose anchor does not change with its text."""
    return f"{'#' * level} {text} {{ #{anchor} }}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a text in a cell may have several lines and hold `|`."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def bullets(facts: Iterable[tuple[str, str]]) -> str:
    """Return a list of facts with their names; a fact without text is left out."""
    return "\n".join(f"- {name}: {text}" for name, text in facts if text)


def code(text: str) -> str:
    return f"`{text}`"


def value(given: object) -> str:
    """Return a value as JSON, in code."""
    return code(json.dumps(given, ensure_ascii=False))


def sentence(text: str) -> str:
    """Return a text that begins with a capital and ends with a full stop; empty if it is empty."""
    text = " ".join(text.split())
    if text and text[-1] not in ".:!?":
        text += "."
    return text[:1].upper() + text[1:]


def anchor(text: str) -> str:
    """Return a text as an anchor: small letters, digits and `-`; `_` stays."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def paragraphs(text: str) -> list[str]:
    """Turn a help text of click into Markdown; a list of examples becomes a block `sh`."""
    found = []
    for part in re.split(r"\n\s*\n", cleandoc(text)):
        title, mark, kept = part.partition("\b\n")
        if not mark:
            found.append(" ".join(part.split()))
            continue
        lines = [*title.splitlines(), *kept.splitlines()]
        introduction = [lines.pop(0)] if lines[0].endswith(":") else []
        block = cleandoc("\n".join(["", *lines]))
        found.append("\n\n".join([*introduction, f"```sh\n{block}\n```"]))
    return found

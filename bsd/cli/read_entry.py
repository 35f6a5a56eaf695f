"""One entry on a terminal, for reading: Markdown is rendered, control characters are escaped."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from shutil import get_terminal_size

from rich.console import Console
from rich.markdown import Markdown
from rich.theme import Theme

from bsd.actions.show import ReadEntry, ReadValue
from bsd.cli.output import minute, note, safe, say, size
from bsd.transcripts.reader import parse_entry

_WIDEST = 100  # columns of prose
_LARGEST = 400_000  # characters that are rendered; a longer text is shown as it is
# Colours in the output of programs; escaped, they would only disturb the text.
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
# Rich's theme without its black background, which does not suit a light terminal.
_THEME = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
_STYLED = re.compile(r"(\x1b\[[0-9;:]*m)")


def tell_entry(found: ReadEntry, *, raw: bool) -> None:
    """Print an entry in full.

    Args:
        raw: do not render Markdown; without a terminal it is never rendered.
    """
    view = found.view
    calls = ", ".join(call.name for call in view.calls)
    when = minute(view.time) if view.time else ""
    head = [f"#{view.index}", view.id or "(no id)", view.type, when, size(view.size)]
    head += [f"calls {calls}" if calls else "", f"result of {view.tool}" if view.tool else ""]
    say("  ".join(filter(None, head)), style="1")
    for value in found.values:
        _tell_value(value, raw=raw, alone=len(found.values) == 1)
    if not found.values:
        entry = parse_entry(found.line.encode("utf-8", "surrogateescape"))
        say(found.line if entry is None else json.dumps(entry, indent=2, ensure_ascii=False))
    for key, why in found.unavailable.items():
        note(f"{key}: {why}")


def _tell_value(value: ReadValue, *, raw: bool, alone: bool) -> None:
    badge = "  📎 extracted" if value.is_stored else ""
    if not alone or badge:
        say(f"\n{value.key}{badge}", style="2")
    else:
        say()
    text = _COLOURS.sub("", value.text.replace("\r\n", "\n"))
    rendered = sys.stdout.isatty() and value.is_prose and not raw and len(text) <= _LARGEST
    if rendered:
        sys.stdout.writelines(f"{line}\n" for line in _markdown(safe(text, lines=True)))
    else:
        say(text.rstrip("\n"))


def _markdown(text: str) -> Iterator[str]:
    """Yield the lines of a text with its Markdown rendered; links show their targets."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    console = Console(
        width=min(get_terminal_size().columns, _WIDEST),
        force_terminal=not plain,
        color_system=None if plain else "auto",
        theme=_THEME,
        legacy_windows=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
    for line in captured.get().splitlines():
        # Markdown's character references can make control characters: keep only rich's styles.
        yield "".join(
            part if _COLOURS.fullmatch(part) else safe(part) for part in _STYLED.split(line)
        ).rstrip(" ")

"""One Markdown file of sessions. Texts of people and models stay Markdown, without HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bsd import __version__
from bsd.actions.export_entries import Block, BlockKind, ExportedPart, counted
from bsd.core.formatting import format_size

_TICKS = re.compile(r"`{3,}")
# An indented fence may belong to a list and end with the list, so only a fence at the beginning of
# a line counts. The name of a language contains no backtick.
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_MARKUP = re.compile(r"(\\*)(<(?=[A-Za-z/!?])|!(?=\[))")
_MOST_INDENTED = 3  # spaces before the end of a fence
_HEADING = re.compile(r"^(#{1,6} )")


def markdown_pieces(parts: Iterable[ExportedPart], *, redacted: int) -> Iterator[str]:
    """Yield the file piece by piece; `redacted` is the number of secrets replaced in it."""
    for number, part in enumerate(parts):
        title = _line(part.title)
        note = f", {counted(redacted, 'secret')} replaced" if redacted and not number else ""
        yield f"{'# ' if number == 0 else '# Sub-agent: '}{title}\n\n"
        yield f"Session `{part.session}`, written by bsd {__version__}{note}\n\n"
        left_out = 0
        for entry in part.entries:
            blocks = entry.blocks()
            left_out += not blocks
            if blocks:
                time = f" · {entry.time[:16].replace('T', ' ')} UTC" if entry.time else ""
                yield f"## {_line(entry.who)}{time} · #{entry.index}\n\n"
                yield from map(_block, blocks)
        if left_out:
            yield f"({counted(left_out, 'entry', 'entries')} of bookkeeping left out.)\n\n"


def _block(block: Block) -> str:
    match block.kind:
        case BlockKind.TEXT:
            return _without_markup(block.text) + "\n\n"
        case BlockKind.THINKING:
            return f"**Thinking**\n\n{_fenced(block.text)}"
        case BlockKind.CALL:
            return f"**Call of {_line(block.title) or 'a tool'}**\n\n{_fenced(block.text)}"
        case BlockKind.PICTURE if block.media:
            return f"[{_line(block.media.media_type)}, {format_size(block.media.size)}]\n\n"
    return (
        f"**Result{_line(' of ' + block.title if block.title else '')}**\n\n{_fenced(block.text)}"
    )


def _line(text: str) -> str:
    """Return a text on one line, with all Markdown characters escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}\n\n"


def _ends(line: str, fence: str) -> bool:
    """Return True if a line closes a fence according to CommonMark."""
    mark = line.rstrip(" \t")
    mark = mark.lstrip(" ") if len(mark) - len(mark.lstrip(" ")) <= _MOST_INDENTED else ""
    return mark.startswith(fence) and not mark.strip(fence[0])


def _escaped(mark: re.Match[str]) -> str:
    """Return a mark with a backslash before it, unless it is already escaped.

    A mark is escaped if an odd number of backslashes precedes it.
    """
    return mark[0] if len(mark[1]) % 2 else f"{mark[1]}\\{mark[2]}"


def _without_markup(text: str) -> str:
    """Return Markdown without HTML and pictures, and with headings two levels lower.

    Text inside fences stays as it is. A fence that is open at the end is closed.
    """
    lines, fence = [], ""
    for written in text.split("\n"):
        line = written
        if fence:
            if _ends(line, fence):
                fence = ""
        elif mark := _FENCE.match(line):
            fence = mark[1] or mark[2]
        else:
            line = _HEADING.sub(r"##\1", _MARKUP.sub(_escaped, line))
        lines.append(line)
    return "\n".join([*lines, fence] if fence else lines)

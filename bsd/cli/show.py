"""`bsd show`: the entries of a session, as they stand or with what was taken out of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from bsd.cli.call import SESSION, Call, command
from bsd.cli.output import print_json, print_table, say
from bsd.cli.text import counted, one_line, size

if TYPE_CHECKING:
    from bsd.foundation.layout import SessionName
    from bsd.surgeon import EntryView, Surgeon

_PREVIEW = 200  # characters (seed 000, SP-06)


@command(
    "show",
    """
    📎 marks an entry that values were taken out of. --full prints whole lines, and what was taken
    out of them from the store; nothing is put back. ENTRY is an id or a line number; #N is always
    the line number, counted from 0.

    \b
    Examples:
      bsd show main/4f2a --from 100 --limit 20
      bsd show main/4f2a --entry 1c556fa0
      bsd show main/4f2a --entry '#45' --full --json
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.option("--entry", metavar="ENTRY", help="Only this entry.")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First line number.")
@click.option("--limit", type=click.IntRange(min=1), help="No more than so many entries.")
@click.option("--full", is_flag=True, help="Whole texts, extracted ones from the store.")
@click.pass_obj
def show(
    call: Call,
    /,
    session: SessionName,
    entry: str | None,
    start: int,
    limit: int | None,
    full: bool,
) -> None:
    surgeon = call.surgeon(writes=False)
    if entry is not None:
        views = [_find(surgeon, session, entry)]
    else:
        views = list(surgeon.entries(session, start=start, limit=limit))
    lines = _lines(call, session, {view.index for view in views}) if full else {}
    if call.json:
        documents = [_document(surgeon, session, view, lines) for view in views]
        print_json({"session": str(session), "entries": documents})
    elif entry is not None or full:
        for view in views:
            _print_one(surgeon, session, view, lines)
    else:
        _print_list(views)


def _find(surgeon: Surgeon, session: SessionName, wanted: str) -> EntryView:
    """The entry by id, else by line number: the first of several with the same id."""
    from bsd.foundation.errors import NotFound

    by_index = wanted.removeprefix("#")
    index = int(by_index) if by_index.isascii() and by_index.isdigit() else None
    at_index = None
    for view in surgeon.entries(session):
        if view.id == wanted and not wanted.startswith("#"):
            return view
        if view.index == index:
            at_index = view
    if at_index is None:
        hint = f"`bsd show {session}` lists them"
        raise NotFound(f"there is no entry {wanted} in {session}", hint=hint)
    return at_index


def _lines(call: Call, session: SessionName, wanted: set[int]) -> dict[int, bytes]:
    from bsd.transcript.reader import TranscriptFile

    with TranscriptFile(call.layout.session_file(session)) as file:
        return {line.index: line.raw for line in file.lines() if line.index in wanted}


def _content(surgeon: Surgeon, session: SessionName, view: EntryView) -> dict[str, Any]:
    if not view.extracted:
        return {}
    return surgeon.extracted_content(session, view.id or f"#{view.index}")


def _document(
    surgeon: Surgeon, session: SessionName, view: EntryView, lines: dict[int, bytes]
) -> dict[str, Any]:
    document = view.as_json()
    if view.index in lines:
        line = lines[view.index].rstrip(b"\r\n")
        document["line"] = line.decode("utf-8", "surrogateescape")
        document["content"] = _content(surgeon, session, view)
    return document


def _print_list(views: list[EntryView]) -> None:
    rows = [
        (
            str(view.index),
            view.id or "",
            view.type,
            size(view.size),
            "📎" if view.extracted else "",
            " ".join(_notes(view)),
            one_line(view.preview, 80),
        )
        for view in views
    ]
    columns = ("INDEX", "ID", "TYPE", "SIZE", "", "NOTES", "TEXT")
    print_table(columns, rows, right=("INDEX", "SIZE"), folding="TEXT")
    out = sum(view.extracted for view in views)
    say(f"\n{counted(len(views), 'entry')}, {out} of them extracted")


def _notes(view: EntryView) -> Iterator[str]:
    if view.extractable is not None:
        yield f"_extractable={str(view.extractable).lower()}"
    if view.restored is not None:
        yield f"restored {view.restored}"


def _print_one(
    surgeon: Surgeon, session: SessionName, view: EntryView, lines: dict[int, bytes]
) -> None:
    badge = "📎 extracted" if view.extracted else ""
    head = (f"#{view.index}", view.id or "(no id)", view.type, size(view.size), badge)
    say("  ".join(part for part in (*head, *_notes(view)) if part))
    full = view.index in lines
    say(_readable(lines[view.index]) if full else f"  {one_line(view.preview, _PREVIEW)}")
    for key, text in _texts(_content(surgeon, session, view)):
        amount = size(len(text.encode("utf-8", "surrogatepass")))
        say(f"\n📎 {key} ({amount})")
        say(text if full else f"  {one_line(text, _PREVIEW)}")
    say()


def _texts(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in content.get("values", {}).items():
        yield key, value if isinstance(value, str) else json.dumps(value, indent=2)
    for key, why in content.get("unavailable", {}).items():
        yield key, why


def _readable(line: bytes) -> str:
    from bsd.transcript.reader import parse_entry

    entry = parse_entry(line)
    if entry is None:
        return line.decode("utf-8", "backslashreplace").rstrip("\r\n")
    return json.dumps(entry, indent=2, ensure_ascii=False)

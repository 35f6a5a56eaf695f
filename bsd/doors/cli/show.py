"""`bsd show`: the entries of a session, as they stand or with what was taken out of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from bsd.agents.dialect import Format
from bsd.doors.cli import complete
from bsd.doors.cli.call import SESSION, Call, command
from bsd.doors.cli.names import say_whose, with_entry
from bsd.doors.cli.output import counted, one_line, print_json, print_table, say, size
from bsd.foundation.errors import Invalid, NotFound
from bsd.foundation.layout import SessionName
from bsd.session.queries import Queries
from bsd.session.session import Session
from bsd.store.extracted import SessionStore
from bsd.surgery.view import EntryView, extracted_content, views
from bsd.text.reader import BytesTranscript, Transcript, parse_entry
from bsd.verbs.pages import text_of_value
from bsd.verbs.reading import held_in

_PREVIEW = 200  # characters (seed 000, SP-06)


@command(
    "show",
    """
    📎 marks an entry that values were taken out of. --full prints whole lines, and what was taken
    out of them from the store; --key prints the text of one value and nothing else, to read or to
    pipe. Nothing is put back. ENTRY is an id or a line number; #N is always the line number,
    counted from 0.

    \b
    Examples:
      bsd show main/4f2a --from 100 --limit 20
      bsd show main/4f2a --entry 1c556fa0
      bsd show main/4f2a --entry '#45' --full --json
      bsd show main/4f2a --entry 1c556fa0 --key output | less
    """,
)
@click.argument("session", type=SESSION, metavar="AGENT/SESSION")
@click.option("--entry", metavar="ENTRY", help="Only this entry.", shell_complete=complete.entries)
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First line number.")
@click.option("--limit", type=click.IntRange(min=1), help="No more than so many entries.")
@click.option("--full", is_flag=True, help="Whole texts, extracted ones from the store.")
@click.option("--key", metavar="KEY", help="Only this value of ENTRY: a path, or a segment of it.")
@click.pass_obj
def show(
    call: Call,
    /,
    session: SessionName,
    entry: str | None,
    start: int,
    limit: int | None,
    full: bool,
    key: str | None,
) -> None:
    say_whose(call.layout, session.agent)
    queries = call.queries()
    if key is not None:
        _print_value(call, queries, session, entry, key)
        return
    if entry is not None:
        views = [with_entry(call, session, entry, lambda one: _find(queries, session, one))]
    else:
        views = queries.look(session, lambda source, fmt, _: _listed(source, fmt, start, limit))
    details = _details(call, session, views) if full or entry is not None else {}
    if call.json:
        documents = [view.as_json() | details.get(view.index, {}) for view in views]
        print_json({"session": str(session), "entries": documents})
    elif details:
        for view in views:
            _print_one(view, details[view.index], full=full)
    else:
        print_entries(views)


def _print_value(
    call: Call, queries: Queries, session: SessionName, entry: str | None, key: str
) -> None:
    """Print one value, wherever it is: as it is if a program reads it, made safe for people."""
    if entry is None:
        raise Invalid("--key needs --entry", hint=f"bsd show {session} --entry ID --key {key}")
    entry, held = with_entry(
        call, session, entry, lambda one: (one, held_in(queries, session, one))
    )
    path, value = held.value(key)
    text = text_of_value(value)
    if call.json:
        print_json({"session": str(session), "entry_id": entry, "key": path, "value": value})
    elif sys.stdout.isatty():
        say(text)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()


def _listed(source: Transcript, fmt: Format, start: int, limit: int | None) -> list[EntryView]:
    return list(views(source, fmt, start=start, limit=limit))


def _find(queries: Queries, session: SessionName, wanted: str) -> EntryView:
    view = queries.look(session, lambda source, fmt, _: _found(source, fmt, wanted))
    if view is None:
        hint = f"`bsd show {session}` lists them"
        raise NotFound(f"there is no entry {wanted} in {session}", hint=hint)
    return view


def _found(source: Transcript, fmt: Format, wanted: str) -> EntryView | None:
    """The entry by id, else by line number: the first of several with the same id."""
    by_index = wanted.removeprefix("#")
    index = int(by_index) if by_index.isascii() and by_index.isdigit() else None
    at_index = None
    for view in views(source, fmt):
        if view.id == wanted and not wanted.startswith("#"):
            return view
        if view.index == index:
            at_index = view
    return at_index


def _details(call: Call, session: SessionName, views: list[EntryView]) -> dict[int, dict[str, Any]]:
    """What the contract adds to single entries: the line, and what was taken out of it."""
    wanted = {view.index: view for view in views}
    store = SessionStore(call.layout, session)
    found: dict[int, dict[str, Any]] = {}
    source, fmt = Session(call.layout, session).open()
    with source:
        for line in source.lines():
            if line.index not in wanted:
                continue
            detail: dict[str, Any] = {"content": {}, "unavailable": {}}
            if wanted[line.index].extracted:
                away = extracted_content(BytesTranscript(line.raw), fmt, "#0", store)
                detail = {"content": away.content, "unavailable": away.unavailable}
            text = line.raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
            found[line.index] = {"line": text, **detail}
    return found


def print_entries(views: Sequence[EntryView]) -> None:
    """Print entries as a table."""
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
    print_table(columns, rows, right=("INDEX", "SIZE"), last_may_shrink=True)
    out = sum(view.extracted for view in views)
    say(f"\n{counted(len(views), 'entry')}, {out} of them extracted")


def _notes(view: EntryView) -> Iterator[str]:
    if view.extractable is not None:
        yield f"_extractable={str(view.extractable).lower()}"
    if view.restored is not None:
        yield f"restored {view.restored}"


def _print_one(view: EntryView, detail: dict[str, Any], *, full: bool) -> None:
    badge = "📎 extracted" if view.extracted else ""
    head = (f"#{view.index}", view.id or "(no id)", view.type, size(view.size), badge)
    say("  ".join(part for part in (*head, *_notes(view)) if part))
    say(_readable(detail["line"]) if full else f"  {one_line(view.preview, _PREVIEW)}")
    for key, value in detail["content"].items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2)
        say(f"\n📎 {key} ({size(len(text.encode('utf-8', 'surrogatepass')))})")
        say(text if full else f"  {one_line(text, _PREVIEW)}")
    for key, why in detail["unavailable"].items():
        say(f"\n📎 {key}: {why}")
    say()


def _readable(line: str) -> str:
    entry = parse_entry(line.encode("utf-8", "surrogateescape"))
    return line if entry is None else json.dumps(entry, indent=2, ensure_ascii=False)

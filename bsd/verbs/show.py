"""show: entries of a session as they stand, whole ones, or one value; nothing is put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from bsd.agents.dialect import Format
from bsd.foundation.answers import INTERNAL, Answer, contract
from bsd.foundation.errors import Invalid, NotFound
from bsd.foundation.immutable import immutable
from bsd.store.extracted import Stored
from bsd.surgery.plan import Means
from bsd.surgery.view import EntryView, extracted_content, views
from bsd.text.reader import BytesTranscript, Transcript
from bsd.verbs.read_extracted import held_by
from bsd.verbs.verb import Verb, argument


@dataclass(frozen=True, slots=True)
class Show:
    """All entries from a line on, or one entry; or one value of that."""

    entry: str | None = field(default=None, metadata=argument("Only this entry.", metavar="ENTRY"))
    start: int = field(
        default=0, metadata=argument("First line number.", least=0, names={"cli": "from"})
    )
    limit: int | None = field(
        default=None, metadata=argument("No more than so many entries.", least=1)
    )
    full: bool = field(
        default=False, metadata=argument("Whole texts, extracted ones from the store.")
    )
    key: str | None = field(
        default=None,
        metadata=argument("Only this value of ENTRY: a path, or a segment of it.", metavar="KEY"),
    )


@immutable
class WholeEntry(EntryView):
    """An entry, its line, and what was taken out of that."""

    line: str = field(default="", metadata=contract("As it stands there"))
    content: dict[str, Any] = field(default_factory=dict)  # by key, as it was
    unavailable: dict[str, str] = field(default_factory=dict)  # key → why it cannot be had


class Shown(Answer):
    """Entries, or a value."""


@dataclass(frozen=True, slots=True)
class ShownEntries(Shown):
    """In their order; whole ones if one was asked for, or all of them `full`."""

    session: str
    entries: tuple[EntryView, ...]
    full: bool = field(metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class ShownValue(Shown):
    """One value, wherever it is."""

    session: str
    entry_id: str
    key: str
    value: Any


def _query(source: Transcript, fmt: Format, asked: Show, means: Means) -> Shown:
    name = str(means.name)
    if asked.key is not None:
        if asked.entry is None:
            hint = f"bsd show {name} --entry ID --key {asked.key}"
            raise Invalid("--key needs --entry", hint=hint)
        held = held_by(source, fmt, asked.entry, means.stored)
        return ShownValue(name, asked.entry, *held.value(asked.key))
    if asked.entry is not None:
        found = [_entry(source, fmt, asked.entry, name)]
    else:
        found = list(views(source, fmt, start=asked.start, limit=asked.limit))
    if asked.full or asked.entry is not None:
        return ShownEntries(name, tuple(_whole(source, fmt, found, means.stored)), asked.full)
    return ShownEntries(name, tuple(found), asked.full)


def _entry(source: Transcript, fmt: Format, wanted: str, session: str) -> EntryView:
    """The entry by id, else by line number: the first of several with the same id."""
    by_index = wanted.removeprefix("#")
    index = int(by_index) if by_index.isascii() and by_index.isdigit() else None
    at_index = None
    for view in views(source, fmt):
        if view.id == wanted and not wanted.startswith("#"):
            return view
        if view.index == index:
            at_index = view
    if at_index is None:
        hint = f"`bsd show {session}` lists them"
        raise NotFound(f"there is no entry {wanted} in {session}", hint=hint)
    return at_index


def _whole(
    source: Transcript, fmt: Format, found: Sequence[EntryView], stored: Stored
) -> Iterator[WholeEntry]:
    wanted = {view.index: view for view in found}
    for line in source.lines():
        if (view := wanted.get(line.index)) is None:
            continue
        away: dict[str, Any] = {}
        if view.extracted:
            taken = extracted_content(BytesTranscript(line.raw), fmt, "#0", stored)
            away = {"content": taken.content, "unavailable": taken.unavailable}
        known = {one.name: getattr(view, one.name) for one in fields(EntryView)}
        text = line.raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
        yield WholeEntry(**known, line=text, **away)


SHOW = Verb(
    name="show",
    arguments=Show,
    answer=Shown,
    query=_query,
    about="""
    📎 marks an entry that values were taken out of. --full prints whole lines, and what was taken
    out of them from the store; --key prints the text of one value and nothing else, to read or to
    pipe. Nothing is put back. ENTRY is an id or a line number; #N is always the line number,
    counted from 0.
    """,
    examples=(
        "bsd show main/4f2a --from 100 --limit 20",
        "bsd show main/4f2a --entry 1c556fa0",
        "bsd show main/4f2a --entry '#45' --full --json",
        "bsd show main/4f2a --entry 1c556fa0 --key output | less",
    ),
)

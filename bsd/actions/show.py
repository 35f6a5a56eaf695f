"""show_entries and show_value: the content of a session, extracted values included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import held_by, text_of_value
from bsd.core.answers import Internal
from bsd.core.errors import NotFound
from bsd.core.formatting import format_size
from bsd.core.layout import SessionName
from bsd.maintenance.catalog import resume_command
from bsd.planning.view import EntryView, extracted_content, outline_of, views
from bsd.store.originals import OriginalStore
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.damage import DamagedLines, damage_of, is_damaged
from bsd.transcripts.reader import BytesTranscript, Transcript, parse_entry
from bsd.transcripts.spans import format_path, parse_path, value_at


@dataclass(frozen=True, slots=True)
class WholeEntry(EntryView):
    """An entry, its line, and what was taken out of that."""

    line: Annotated[str, Field(description="As it stands there")] = ""
    content: dict[str, Any] = field(default_factory=dict)  # by key, as it was
    unavailable: dict[str, str] = field(default_factory=dict)  # key → why it cannot be had


@dataclass(frozen=True, slots=True)
class ShownEntries:
    """In their order; whole ones if one was asked for, or all of them `full`."""

    session: str
    entries: tuple[WholeEntry | EntryView, ...]
    full: Internal[bool]
    damaged: Annotated[
        DamagedLines | None, Field(description="Of the whole session; null for one entry")
    ] = None
    left_alone: Annotated[
        str | None, Field(description="Why bsd does not edit the session, if it does not")
    ] = None
    resume: Annotated[
        str | None, Field(description="The command that continues it in its program")
    ] = None


@dataclass(frozen=True, slots=True)
class ShownValue:
    """One value, wherever it is."""

    session: str
    entry_id: str
    key: str
    value: Any


def show_entries(
    context: ActionContext,
    session: SessionName,
    *,
    entry: str | None = None,
    start: int = 0,
    limit: int | None = None,
    full: bool = False,
) -> ShownEntries:
    """Show the entries of a session from a line on, or one of them.

    Args:
        entry: only this entry, by id or line number; `#` before it: always a line number.
        start: line number from which on entries are shown.
        full: whole texts, extracted ones from the store.

    Raises:
        NotFound: there is no such session or entry.
        LeftAlone: its lines are not understood.
    """
    with context.reader(session) as opened:
        source, fmt = opened.transcript, opened.format
        found: Sequence[WholeEntry | EntryView]
        damaged = None
        if entry is not None:
            found = [_entry(source, fmt, entry, str(session))]
        else:
            outline = outline_of(source, fmt)
            found = list(views(source, fmt, start=start, limit=limit, outline=outline))
            damaged = outline.damaged(source)
        if full or entry is not None:
            found = list(_whole(source, fmt, found, opened.store))
        left_alone = opened.left_alone
    resume = resume_command(context.layout, session)
    return ShownEntries(str(session), tuple(found), full, damaged, left_alone, resume)


def show_value(context: ActionContext, session: SessionName, entry: str, key: str) -> ShownValue:
    """Show one value of an entry, wherever it is; `key` is a path or one segment of it.

    Raises:
        NotFound: there is no such session or entry.
        Invalid: the key names no value, or several.
        Conflict: the value cannot be had.
    """
    with context.reader(session) as opened:
        held = held_by(opened.transcript, opened.format, entry, opened.store)
        return ShownValue(str(session), entry, *held.value(key))


def _entry(source: Transcript, fmt: TranscriptFormat, wanted: str, session: str) -> EntryView:
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
        raise NotFound(_why_none(source, wanted, index, session), hint=hint)
    return at_index


def _why_none(source: Transcript, wanted: str, index: int | None, session: str) -> str:
    """Say that there is no such entry, or that the line of this number is damaged."""
    for line in source.lines() if index is not None else ():
        if line.index == index and is_damaged(line.raw, parse_entry(line.raw)):
            damage = damage_of(line.raw).in_words
            return f"line {index} of {session} holds no entry ({damage}); it is kept as it is"
    return f"there is no entry {wanted} in {session}"


def _whole(
    source: Transcript, fmt: TranscriptFormat, found: Sequence[EntryView], stored: OriginalStore
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


@dataclass(frozen=True, slots=True)
class ReadValue:
    """One value of an entry, whole.

    Attributes:
        text: the value, or JSON of one that is no text.
        is_stored: it is out of the session, and comes from the store or the archive.
        is_prose: a model has written it to be read; it may hold Markdown.
    """

    key: str
    text: str
    is_stored: bool
    is_prose: bool


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An entry to be read from top to bottom: its values in their order.

    Attributes:
        line: the line as it stands in the session; it says the rest if there are no values.
        unavailable: why values cannot be had, by key.
    """

    session: str
    view: EntryView
    values: tuple[ReadValue, ...]
    unavailable: dict[str, str]
    line: str


def read_entry(context: ActionContext, session: SessionName, entry: str) -> ReadEntry:
    """Read one entry whole; values that are out of the session come from where they are kept.

    Args:
        entry: an id, or a line number; `#` before it: always a line number.

    Raises:
        NotFound: there is no such session or entry.
        LeftAlone: its lines are not understood.
    """
    with context.reader(session) as opened:
        source, fmt = opened.transcript, opened.format
        view = _entry(source, fmt, entry, str(session))
        whole = next(_whole(source, fmt, [view], opened.store))
        parsed = parse_entry(whole.line.encode("utf-8", "surrogateescape")) or {}
        found = {format_path(one.path): value_at(parsed, one.path) for one in fmt.values(parsed)}
    stored = whole.content
    inline = {
        key: value
        for key, value in found.items()
        if key not in stored and key not in whole.unavailable
    }
    values = tuple(
        ReadValue(key, _text_of(value), key in stored, _is_prose(view.type, key))
        for key, value in sorted({**inline, **stored}.items(), key=lambda each: _order(each[0]))
    )
    return ReadEntry(str(session), view, values, whole.unavailable, whole.line)


def _text_of(value: Any) -> str:
    media = media_of(value)
    if media is not None:
        return f"[{media.media_type}, {format_size(media.size)}]"
    return text_of_value(value)


_PROSE = frozenset(("text", "content", "message", "thinking"))


def _is_prose(entry_type: str, key: str) -> bool:
    """Return True for texts of models; users' texts mean their lines as they typed them."""
    names = [step for step in parse_path(key) if isinstance(step, str)]
    return entry_type == "assistant" and bool(names) and names[-1] in _PROSE


def _order(key: str) -> list[tuple[bool, int, str]]:
    """Sort keys in the order of the entry's blocks."""
    return [
        (isinstance(step, str), step if isinstance(step, int) else 0, str(step))
        for step in parse_path(key)
    ]

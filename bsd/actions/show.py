"""show_entries, show_value and read_entry: the content of a session, with extracted values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import held_by, text_of_value
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import NotFound
from bsd.core.formatting import format_size
from bsd.core.layout import SessionName
from bsd.maintenance.catalog import resume_command, waits
from bsd.maintenance.lineage import BeginsIn, begins_in
from bsd.planning.timing import Timing
from bsd.planning.timing_members import wait_of
from bsd.planning.view import EntryView, extracted_content, outline_of, views
from bsd.store.originals import OriginalStore
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.values import media_of
from bsd.transcripts.damage import DamagedLines, damage_of, is_damaged
from bsd.transcripts.reader import BytesTranscript, Transcript, parse_entry
from bsd.transcripts.spans import format_path, parse_path, value_at


@dataclass(frozen=True, slots=True)
class WholeEntry(EntryView):
    """An entry with its line and its extracted values."""

    line: Annotated[str, Field(description="The line as the session contains it")] = ""
    content: dict[str, Any] = field(default_factory=dict)  # key → extracted value
    unavailable: dict[str, str] = field(default_factory=dict)  # key → why it is not available


@dataclass(frozen=True, slots=True)
class ShownEntries:
    """Entries in their order; whole if one entry was requested, or with `full`."""

    session: str
    entries: tuple[WholeEntry | EntryView, ...]
    full: Internal[bool]
    damaged: Annotated[
        DamagedLines | None,
        Field(description="Damaged lines of the whole session; null for one entry"),
    ] = None
    left_alone: Annotated[
        str | None, Field(description="Why bsd does not edit the session; null: bsd edits it")
    ] = None
    resume: Annotated[
        str | None, Field(description="The command that continues it in its program")
    ] = None
    begins_in: Annotated[
        BeginsIn | None, Field(description="The session in whose file it begins"), OMIT_EMPTY
    ] = None
    wait: Internal[Timing | None] = None  # of values that its prompt cache keeps, if any


@dataclass(frozen=True, slots=True)
class ShownValue:
    """One value, inline or extracted."""

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
    """Return the entries of a session from a line on, or one entry.

    Args:
        entry: only this entry: its id or line number, or `#` and its line number.
        start: the number of the first line.
        limit: the maximum number of entries; None: all.
        full: return whole lines and extracted values.

    Raises:
        NotFound: there is no such session or entry.
        LeftAlone: bsd does not know the format of its lines.
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
        begun = None if entry is not None else begins_in(context.layout, session, source)
    resume = resume_command(context.layout, session)
    wait = wait_of(waits(context.layout, session), context.now())
    return ShownEntries(str(session), tuple(found), full, damaged, left_alone, resume, begun, wait)


def show_value(context: ActionContext, session: SessionName, entry: str, key: str) -> ShownValue:
    """Return one value of an entry, inline or extracted; `key` is a path or one segment of it.

    Raises:
        NotFound: there is no such session or entry.
        Invalid: the key names no value, or more than one.
        Conflict: the value is not available.
    """
    with context.reader(session) as opened:
        held = held_by(opened.transcript, opened.format, entry, opened.store)
        return ShownValue(str(session), entry, *held.value(key))


def _entry(source: Transcript, fmt: TranscriptFormat, wanted: str, session: str) -> EntryView:
    """Return the first entry with this id; if there is none, the entry with this line number."""
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
    """Return a message: there is no such entry, or the line of this number is damaged."""
    for line in source.lines() if index is not None else ():
        if line.index == index and is_damaged(line.raw, parse_entry(line.raw)):
            damage = damage_of(line.raw).in_words
            return f"line {index} of {session} contains no entry ({damage}); it is kept as it is"
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
    """One value of an entry, as a whole.

    Attributes:
        text: the value if it is a text, else its JSON.
        is_stored: the value is extracted; it comes from the store or the archive.
        is_prose: a model wrote the text for a reader; it may contain Markdown.
    """

    key: str
    text: str
    is_stored: bool
    is_prose: bool


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An entry for reading: its values in their order.

    Attributes:
        values: inline and extracted values.
        unavailable: key → why the value is not available.
        line: the line as the session contains it; shown if there are no values.
    """

    session: str
    view: EntryView
    values: tuple[ReadValue, ...]
    unavailable: dict[str, str]
    line: str


def read_entry(context: ActionContext, session: SessionName, entry: str) -> ReadEntry:
    """Return one entry with all of its values; extracted ones come from the store or the archive.

    Args:
        entry: an id or a line number, or `#` and a line number.

    Raises:
        NotFound: there is no such session or entry.
        LeftAlone: bsd does not know the format of its lines.
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
    """Return True for texts of models; line breaks in users' texts must be kept as typed."""
    names = [step for step in parse_path(key) if isinstance(step, str)]
    return entry_type == "assistant" and bool(names) and names[-1] in _PROSE


def _order(key: str) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts keys in the order of the entry's blocks."""
    return [
        (isinstance(step, str), step if isinstance(step, int) else 0, str(step))
        for step in parse_path(key)
    ]

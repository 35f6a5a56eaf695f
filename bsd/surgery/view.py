"""A session as people and agents see it: one row an entry, nothing changed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format
from bsd.agents.entry import Entry
from bsd.agents.marker import EXTRACTABLE, RESTORED, Marker
from bsd.foundation.answers import INTERNAL, Answer, contract
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import SessionName
from bsd.foundation.spelling import iso_utc
from bsd.foundation.value_path import paths_of, value_at
from bsd.store.extracted import Missing, Stored
from bsd.store.markers import Markers, source_paths
from bsd.surgery.hashes import SHORTEST, line_hash
from bsd.surgery.kept import nothing_away, original_of
from bsd.surgery.locate import locate
from bsd.surgery.plan import Source
from bsd.surgery.restore import UNAVAILABLE
from bsd.text.reader import Line, parse_entry

_PREVIEW = 200  # characters (seed 000, SP-06)


@immutable
class CallRow(Answer):
    """One call of a tool."""

    id: str
    name: str


@immutable
class EntryView(Answer):
    """One entry: what it is, how big, what is out of it. Sizes are bytes."""

    index: int = field(metadata=contract("0-based line number"))
    id: str | None
    type: str
    role: str | None
    size: int
    position: int = field(metadata=contract("Messages after it"))
    extracted: bool
    keys: tuple[str, ...]  # extracted ones
    extracted_size: int  # of the stored line; 0 if nothing is out
    extracted_at: str | None
    extractable: bool | int | None  # `_extractable`, if set
    restored: str | None  # `_restored`, if set
    hash: str  # hex digits of the line's SHA-256, as many as tell it from all others
    preview: str = field(metadata=contract(f"The first {_PREVIEW} characters of its text"))
    time: str | None = field(
        default=None, metadata=contract("When it was written, as the entry says")
    )
    calls: tuple[CallRow, ...] = ()
    result_of: str | None = field(default=None, metadata=contract("Id of the call that it answers"))
    tool: str | None = field(default=None, metadata=contract("Whose result it is"))
    marker: Marker | None = field(default=None, metadata=INTERNAL)  # where its line is kept


def preview_of(text: str) -> str:
    """The beginning of a text, for a list."""
    return text[:_PREVIEW]


def views(
    source: Source, fmt: Format, *, start: int = 0, limit: int | None = None
) -> Iterator[EntryView]:
    """The entries from line `start` on, at most `limit`; lines that are no entries count as lines.

    Reads the file twice: positions and hashes depend on what comes later.
    """
    messages, hashes = _overview(source, fmt)
    stop = None if limit is None else start + limit
    seen = 0
    for line in source.lines():
        if stop is not None and line.index >= stop:
            return
        entry = parse_entry(line.raw)
        if entry is None:
            continue
        is_message = fmt.facts(entry).is_message
        seen += is_message
        if line.index >= start:
            yield view_of(line, entry, fmt, messages - seen, _shortest(line_hash(line.raw), hashes))


@dataclass(frozen=True, slots=True)
class ContextEntry(Answer):
    """One entry, as an agent may know it. Sizes are bytes."""

    index: int = field(metadata=contract("0-based line number"))
    id: str | None
    type: str
    hash: str
    extracted: bool
    extractable: bool | int | None
    size_bytes: int
    extracted_size_bytes: int


@dataclass(frozen=True, slots=True)
class Context(Answer):
    """What an agent may know of its session: sizes, what is away, what could be (seed 001)."""

    session: str
    total_entries: int
    extracted_entries: int
    extracted_ids: tuple[str | None, ...]
    extractable_entries: int
    size_bytes: int
    extracted_size_bytes: int
    last_extracted_at: str | None
    entries: tuple[ContextEntry, ...]


def context(name: SessionName, source: Source, fmt: Format) -> Context:
    """Read what an agent may know of its session."""
    entries = list(views(source, fmt))
    away = [entry for entry in entries if entry.extracted]
    return Context(
        session=str(name),
        total_entries=len(entries),
        extracted_entries=len(away),
        extracted_ids=tuple(entry.id for entry in away),
        extractable_entries=sum(entry.extractable is not False for entry in entries),
        size_bytes=source.identity.size,
        extracted_size_bytes=sum(entry.extracted_size for entry in away),
        last_extracted_at=max((entry.extracted_at or "" for entry in away), default=None),
        entries=tuple(_row(entry) for entry in entries),
    )


def _row(entry: EntryView) -> ContextEntry:
    return ContextEntry(
        index=entry.index,
        id=entry.id,
        type=entry.type,
        hash=entry.hash,
        extracted=entry.extracted,
        extractable=entry.extractable,
        size_bytes=entry.size,
        extracted_size_bytes=entry.extracted_size,
    )


@dataclass(frozen=True, slots=True)
class ExtractedContent(Answer):
    """What was taken out of an entry, by key; what cannot be had is under `unavailable`."""

    entry_id: str | None
    index: int
    ref: str
    extracted_at: str | None
    size_bytes: int
    content: dict[str, Any]
    unavailable: dict[str, str]


def extracted_content(source: Source, fmt: Format, entry: str, stored: Stored) -> ExtractedContent:
    """What was taken out of an entry, by key, without putting it back.

    Raises NotFound, Conflict if nothing of it is away. Content that cannot be had is named under
    `unavailable`, as in the answer of a restoration.
    """
    located = locate(source, fmt, entry)
    markers = Markers(source, fmt, stored).of(located.entry, located.facts)
    if not markers:
        raise nothing_away()
    content: dict[str, Any] = {}
    unavailable: dict[str, str] = {}
    for marker in markers:
        keys = paths_of(marker.keys)
        original = original_of(located.line.raw, located.entry, marker, fmt, stored)
        if isinstance(original, Missing):
            unavailable |= dict.fromkeys(keys, UNAVAILABLE[original])
            continue
        sources = source_paths(located.entry, original.entry, fmt, list(keys.values()))
        for key, path in keys.items():
            if path in sources:
                content[key] = value_at(original.entry, sources[path])
            else:
                unavailable[key] = UNAVAILABLE[Missing.CORRUPT]
    return ExtractedContent(
        entry_id=located.facts.id,
        index=located.line.index,
        ref=markers[0].ref,
        extracted_at=markers[0].at,
        size_bytes=sum(marker.size for marker in markers),
        content=content,
        unavailable=unavailable,
    )


def _overview(source: Source, fmt: Format) -> tuple[int, Counter[str]]:
    messages = 0
    hashes: Counter[str] = Counter()
    for line in source.lines():
        entry = parse_entry(line.raw)
        if entry is None:
            continue
        messages += fmt.facts(entry).is_message
        digest = line_hash(line.raw)
        hashes[digest[:SHORTEST]] += 1
        hashes[digest[: 2 * SHORTEST]] += 1
    return messages, hashes


def _shortest(digest: str, hashes: Counter[str]) -> str:
    for length in (SHORTEST, 2 * SHORTEST):
        if hashes[digest[:length]] == 1:
            return digest[:length]
    return digest


def view_of(line: Line, entry: Entry, fmt: Format, position: int, hash: str) -> EntryView:
    """An entry as a row; `position` and `hash` depend on the other lines."""
    facts = fmt.facts(entry)
    marker = Marker.of(entry)
    extractable = entry.get(EXTRACTABLE)
    restored = entry.get(RESTORED)
    return EntryView(
        index=line.index,
        id=facts.id,
        type=facts.kind,
        role=facts.role,
        size=len(line.raw),
        position=position,
        extracted=bool(marker and marker.keys),
        keys=marker.keys if marker else (),
        extracted_size=marker.size if marker else 0,
        extracted_at=marker.at if marker else None,
        extractable=extractable if isinstance(extractable, int) else None,
        restored=restored if isinstance(restored, str) else None,
        hash=hash,
        preview=_preview(entry, fmt),
        time=_time(facts.time_ms),
        calls=tuple(CallRow(call.id, call.name) for call in facts.calls),
        result_of=facts.result_of,
        tool=facts.result_tool,
        marker=marker if marker and marker.keys else None,
    )


def _preview(entry: Entry, fmt: Format) -> str:
    for value in fmt.values(entry):
        if value.text:
            return preview_of(value.text)
    return ""


def _time(time_ms: float | None) -> str | None:
    with suppress(OverflowError, ValueError, OSError):  # a time that no calendar has
        return None if time_ms is None else iso_utc(time_ms / 1000)
    return None

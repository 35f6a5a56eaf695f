"""What was taken out of an entry, without putting it back; nobody is waited for.

read_extracted: the texts, a page at a time. What is away comes from the store, what is inline again
from the session itself: who was given the first page of a text that came back meanwhile shall get
the second one. read_held is the same for who puts it back as well. show_extracted: the values as
they are stored, and where; a large one is no part of the answer, whoever shows it reads it from its
file, piece by piece.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from bsd.agents.dialect import Format
from bsd.agents.entry import Marker
from bsd.agents.values import Picture, picture_of
from bsd.foundation.definition import Answer, contract
from bsd.foundation.errors import Busy, Conflict, Invalid, LeftAlone
from bsd.foundation.files import plain_file
from bsd.foundation.layout import SessionName
from bsd.foundation.spelling import document
from bsd.session.session import Session
from bsd.store.extracted import Missing, SessionStore, Stored
from bsd.surgery.locate import Located, locate
from bsd.surgery.plan import Means
from bsd.surgery.restore import UNAVAILABLE
from bsd.surgery.view import ExtractedContent, extracted_content
from bsd.text.change import Written
from bsd.text.reader import Transcript
from bsd.text.spans import ValuePath, format_path, names_value, parse_path, paths_of, value_at
from bsd.text.splice import Span, SpliceError, find
from bsd.verbs.restore import ENTRY, KEYS
from bsd.verbs.verb import Hands, Meanwhile, Tool, Verb, argument

LONGEST_TEXT = 40_000  # characters of all texts of a page
LARGEST_PICTURES = 5_000_000  # characters of base64, as much as providers take


@dataclass(frozen=True, slots=True)
class Page:
    """Some of an entry's values, and where the rest begins.

    A picture stands under `pictures`, and under `texts` what it is. Anything else that is no text
    is JSON there.
    """

    entry_id: str
    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)
    following: tuple[str, ...] = ()  # keys of which there is more; the first one may be cut
    offset: int = 0  # so many characters of that one have been given
    left: int = 0  # characters of all of them that have not

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract; those that say nothing are left out."""
        answer: dict[str, Any] = {"texts": self.texts}
        if self.pictures:
            answer["pictures"] = {
                key: {"media_type": one.media_type, "data": one.data}
                for key, one in self.pictures.items()
            }
        if self.following:
            answer["characters_left"] = self.left
            answer["next"] = {
                "tool": "read_extracted",
                "entry": self.entry_id,
                "keys": list(self.following),
                "offset": self.offset,
            }
        return answer


def page_of(
    entry_id: str, content: Mapping[str, Any], keys: Sequence[str], offset: int = 0
) -> Page:
    """A page of the values with these keys; `offset` characters of the first are passed over.

    Raises Invalid for an offset behind the end.
    """
    page = Page(entry_id)
    room = LONGEST_TEXT
    for number, key in enumerate(keys):
        picture = None if offset else picture_of(content[key])
        taken = sum(len(one.data) for one in page.pictures.values())
        if picture is not None and len(picture.data) <= LARGEST_PICTURES:
            if taken + len(picture.data) > LARGEST_PICTURES:
                return _ended(page, content, keys[number:], 0)
            page.pictures[key] = picture
            page.texts[key] = _described(picture)
            continue
        text = text_of_value(content[key])
        if offset and offset >= len(text):
            raise Invalid(
                f"{key} has {len(text)} characters, so there is nothing from {offset} on",
                hint="leave `offset` out to begin at its beginning",
            )
        if room:
            page.texts[key] = text[offset : offset + room]
        if offset + room < len(text):
            return _ended(page, content, keys[number:], offset + room if room else 0)
        room, offset = room - (len(text) - offset), 0
    return page


def text_of_value(value: Any) -> str:
    """A value as text: itself, or JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply to be shown; `bsd show AGENT/SESSION --entry ID --full` can]"


def matching(name: str, keys: Iterable[str]) -> list[str]:
    """The keys that a name means: a whole path, or one segment of it."""
    return [key for key in keys if names_value(name, parse_path(key))]


def _ended(page: Page, content: Mapping[str, Any], left: Sequence[str], offset: int) -> Page:
    characters = sum(len(text_of_value(content[key])) for key in left) - offset
    return replace(page, following=tuple(left), offset=offset, left=characters)


def _described(picture: Picture) -> str:
    return f"[a picture: {picture.media_type}, {len(picture.data) * 3 // 4} bytes]"


# --- what an entry holds ---

Content = Mapping[str, Any]  # key → value


@dataclass(frozen=True, slots=True)
class Held:
    """What an entry holds, or held: values that are away, and how those that are not are had."""

    entry_id: str
    away: Content
    unavailable: Mapping[str, str]  # key → what to show instead
    inline: Callable[[], Content]

    def page(self, keys: Sequence[str] | None, offset: int = 0) -> dict[str, Any]:
        """A page as JSON, and of what is asked for what cannot be had.

        No `keys` means all that is away. Raises Invalid for keys that are none, and for an offset
        behind the end.
        """
        page, lost = self._page(keys, offset)
        return {**page.as_json(), **({"unavailable": lost} if lost else {})}

    def value(self, key: str) -> tuple[str, Any]:
        """One value and its key, whole; raises Invalid, and Conflict if it cannot be had."""
        known = self.away if matching(key, [*self.away, *self.unavailable]) else self.inline()
        found = matching(key, known)
        if len(found) == 1:
            return found[0], known[found[0]]
        for lost in matching(key, self.unavailable):
            raise Conflict(f"{lost}: {self.unavailable[lost]}", hint="`bsd verify` says more")
        which = "names several values" if found else "is none of its values"
        keys = ", ".join(found or [*self.away, *self.unavailable] or known) or "none"
        raise Invalid(f"entry {self.entry_id}: {key} {which}", hint=f"one of {keys}")

    def _page(self, keys: Sequence[str] | None, offset: int) -> tuple[Page, dict[str, str]]:
        if keys is None:
            known = self.away if self.away or self.unavailable else self.inline()
            return page_of(self.entry_id, known, list(known), offset), dict(self.unavailable)
        values: dict[str, Any] = {}
        lost: dict[str, str] = {}
        unknown: list[str] = []
        for name in keys:
            found = {key: self.away[key] for key in matching(name, self.away)}
            gone = {key: self.unavailable[key] for key in matching(name, self.unavailable)}
            if not found and not gone:
                inline = self.inline()
                found = {key: inline[key] for key in matching(name, inline)}
            if not found and not gone:
                unknown.append(name)
            values.update(found)
            lost.update(gone)
        if unknown:
            raise Invalid(
                f"entry {self.entry_id} has no extracted key {', '.join(unknown)}",
                hint=f"its keys: {', '.join([*self.away, *self.unavailable]) or 'none'}",
            )
        return page_of(self.entry_id, values, list(values), offset), lost


def held_by(source: Transcript, fmt: Format, entry: str, stored: Stored) -> Held:
    """What can be had of an entry; raises NotFound, Conflict, LeftAlone, Busy."""
    return _held(
        lambda: extracted_content(source, fmt, entry, stored),
        lambda: _inline(source, fmt, entry),
    )


def _held(away: Callable[[], ExtractedContent], inline: Callable[[], tuple[str, Content]]) -> Held:
    try:
        found = away()
    except (LeftAlone, Busy):
        raise
    except Conflict:
        entry_id, values = inline()  # raises the same, unless all of the entry is inline
        return Held(entry_id, {}, {}, lambda: values)
    entry_id = found.entry_id or f"#{found.index}"
    return Held(entry_id, found.content, found.unavailable, lambda: inline()[1])


def _inline(source: Transcript, fmt: Format, entry: str) -> tuple[str, Content]:
    located = locate(source, fmt, entry)
    paths = [value.path for value in fmt.values(located.entry)]
    values = {format_path(path): value_at(located.entry, path) for path in paths}
    return located.facts.id or f"#{located.line.index}", values


# --- read_extracted ---

OFFSET = argument(
    "Where a long text goes on, as `next` says.", metavar="N", least=0, most=10**12 - 1
)


@dataclass(frozen=True, slots=True)
class ReadExtracted:
    """Without `keys` all that is away."""

    entry: str = field(metadata=ENTRY)
    keys: tuple[str, ...] | None = field(default=None, metadata=KEYS)
    offset: int = field(default=0, metadata=OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOut(Answer):
    """Texts by key; `next` says how to ask for the rest, if there is any."""

    session: str
    entry_id: str
    texts: dict[str, str]
    pictures: dict[str, dict[str, str]] = field(
        default_factory=dict, metadata=contract("media_type and data, by key", omit=True)
    )
    characters_left: int | None = field(default=None, metadata=contract(omit=True))
    next: dict[str, Any] = field(default_factory=dict, metadata=contract(omit=True))
    unavailable: dict[str, str] = field(default_factory=dict, metadata=contract(omit=True))


def _query(source: Transcript, fmt: Format, asked: ReadExtracted, means: Means) -> ReadOut:
    held = held_by(source, fmt, asked.entry, means.stored)
    page = held.page(asked.keys, asked.offset)
    return ReadOut(session=str(means.name), entry_id=held.entry_id, **page)


READ_EXTRACTED = Verb(
    name="read_extracted",
    arguments=ReadExtracted,
    answer=ReadOut,
    query=_query,
    tools=(
        Tool(
            "read_extracted",
            "Read an extracted entry",
            "Read the text that a placeholder [[extracted-ID]] stands for; nothing is changed. "
            "Long texts come in pages of 40,000 characters: `next` of the answer says with which "
            "arguments to read on. Pictures are shown.",
            pictures=True,
        ),
    ),
)


# --- read_held: the same, for who puts it back as well ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHeld(ReadOut):
    """A page, unless nothing of the entry is away and the first one was asked for."""

    is_away: bool


def _query_held(source: Transcript, fmt: Format, asked: ReadExtracted, means: Means) -> ReadHeld:
    held = held_by(source, fmt, asked.entry, means.stored)
    is_away = bool(held.away or held.unavailable)
    page: dict[str, Any] = {"texts": {}}
    if is_away or asked.offset:
        page = held.page(asked.keys, asked.offset)
    return ReadHeld(session=str(means.name), entry_id=held.entry_id, is_away=is_away, **page)


READ_HELD = Verb(
    name="read_held",
    arguments=ReadExtracted,
    answer=ReadHeld,
    query=_query_held,
)


# --- show_extracted ---


@dataclass(frozen=True, slots=True)
class ShowExtracted:
    """Of one entry."""

    entry: str = field(metadata=ENTRY)


@dataclass(frozen=True, slots=True)
class InPieces(Answer):
    """A JSON document, with the fields of `ExtractedContent`: spans are those of a file."""

    parts: tuple[bytes | Span, ...]
    file: Path | None = None
    state: Written | None = None  # of the file, when its hash was compared


class _Own(NamedTuple):
    """A stored line, and its file."""

    line: bytes
    path: Path
    state: Written


def _show(hands: Hands, name: SessionName, asked: ShowExtracted, _: Meanwhile) -> InPieces:
    """The stored line is held whole, but not parsed.

    Raises NotFound, Conflict if nothing of the entry is away.
    """
    store = SessionStore(hands.layout, name)
    source, fmt = Session(hands.layout, name).open_to_read()
    with source:
        located = locate(source, fmt, asked.entry)
        marker = Marker.of(located.entry)
        own = _read_own(store, marker) if marker and _is_of(store, marker, located) else None
        if marker is None or own is None:
            # Where a marker was dropped, or names what another store has, looking takes more.
            found = extracted_content(source, fmt, located.name, store)
            return InPieces((document(found.as_json()),))
    return _in_pieces(located, marker, own)


def _in_pieces(located: Located, marker: Marker, own: _Own) -> InPieces:
    head = {
        "entry_id": located.facts.id,
        "index": located.line.index,
        "ref": marker.ref,
        "extracted_at": marker.at,
        "size_bytes": marker.size,
    }
    paths = paths_of(marker.keys)
    spans = _spans(own.line, paths.values())
    known = {key: spans[path] for key, path in paths.items() if path in spans}
    missing = {key: UNAVAILABLE[Missing.CORRUPT] for key in paths if key not in known}
    parts: list[bytes | Span] = [document(head)[:-1] + b',"content":{']
    for number, (key, span) in enumerate(known.items()):
        parts += [b"," * bool(number) + orjson.dumps(key) + b":", span]
    parts.append(b'},"unavailable":' + orjson.dumps(missing) + b"}")
    return InPieces(tuple(parts), own.path, own.state)


def _is_of(store: SessionStore, marker: Marker, located: Located) -> bool:
    """Whether a marker names a line that is stored for this very entry, by the store's index."""
    record = store.index.records.get(f"{marker.ref}.json")
    return record is not None and record.entry_id == located.facts.id


def _read_own(store: SessionStore, marker: Marker) -> _Own | None:
    """The file that a marker names, if it is there and holds what it shall."""
    try:
        path = store.file(marker.ref)
        file = plain_file(path)
    except (OSError, Invalid):
        return None
    with file, suppress(OSError):
        # A large one is not held in memory before it is known to be the right one.
        if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == marker.hash:
            file.seek(0)
            return _Own(file.read(), path, Written.of(os.fstat(file.fileno())))
    return None


def _spans(line: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    wanted = list(paths)
    try:
        return find(line, wanted)
    except SpliceError:
        if len(wanted) <= 1:
            return {}
    # One that is not there shall not hide the others.
    return {path: span for one in wanted for path, span in _spans(line, [one]).items()}


# Only HTTP has a route of its own for it: the document is sent in pieces.
SHOW_EXTRACTED = Verb(
    name="show_extracted",
    arguments=ShowExtracted,
    answer=InPieces,
    act=_show,
)

"""Read extracted values of an entry without restoring them, even while a session is in use.

- `read_extracted` returns the texts that a model was sent, page by page. Extracted values come from
  the store, inline values from the session: if a text was restored after its first page was read,
  its second page must still be readable.
- `read_held` does the same for a caller that also restores the values.
- `show_extracted` returns the values as they are stored. An interface sends them from their file,
  piece by piece.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.answers import OMIT_EMPTY, as_json
from bsd.core.errors import Busy, Conflict, Invalid, LeftAlone
from bsd.core.files import plain_file
from bsd.core.formatting import document
from bsd.core.layout import SessionName
from bsd.planning.locate import Located, locate_copies
from bsd.planning.restore import UNAVAILABLE
from bsd.planning.view import ExtractedContent, extracted_content
from bsd.sessions.session import OpenSession
from bsd.store.originals import Missing, OriginalStore, SessionStore
from bsd.transcripts.agents.entry import Marker
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.opening import database_with
from bsd.transcripts.agents.page_size import OTHERS, PageSize
from bsd.transcripts.agents.values import LARGEST_PICTURE, Media, media_of
from bsd.transcripts.change import Written
from bsd.transcripts.reader import Transcript
from bsd.transcripts.spans import (
    ValuePath,
    format_path,
    names_value,
    parse_path,
    paths_of,
    value_at,
)
from bsd.transcripts.splice import Span, SpliceError, find

AND_ALL_AFTER = "…"  # after a key: stands for all keys that follow it
_MOST_KEYS = 20  # keys that an answer lists in addition to those with texts
_ABOUT_A_TEXT = 60  # characters of an answer for each text, in addition to its key
_DEEPEST = 100  # levels of lists and objects that are searched for pictures


@dataclass(frozen=True, slots=True)
class Page:
    """Some of an entry's values, and the position at which the rest begins.

    For a picture, `pictures` has its data and `texts` has a description. For other content in
    base64, only `texts` has a description. All other values that are not texts are JSON in `texts`.
    """

    entry_id: str
    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Media] = field(default_factory=dict)
    following: tuple[str, ...] = ()  # keys with more text; the first of them may be cut
    offset: int = 0  # characters of the first of `following` that have been returned
    left: int = 0  # characters of all of `following` that have not been returned

    def as_json(self, *, in_order: bool = False) -> dict[str, Any]:
        """Return the fields of `ReadOut`, without empty ones.

        `in_order`: the keys are those of the entry in their order, so a long list is cut short.
        """
        answer: dict[str, Any] = {"texts": self.texts}
        if self.pictures:
            answer["pictures"] = {
                key: {"media_type": one.media_type, "data": one.data}
                for key, one in self.pictures.items()
            }
        if self.following:
            many = in_order and len(self.following) > _MOST_KEYS
            answer["characters_left"] = self.left
            answer["next"] = {
                "tool": "read_extracted",
                "entry": self.entry_id,
                "keys": [self.following[0], AND_ALL_AFTER] if many else list(self.following),
                "offset": self.offset,
            }
        return answer


def page_of(
    entry_id: str,
    content: Mapping[str, Any],
    keys: Sequence[str],
    offset: int = 0,
    size: PageSize = OTHERS,
) -> Page:
    """Return a page of the values with these keys.

    Args:
        offset: characters of the first value that are skipped.

    Raises:
        Invalid: the offset is not within the first value.
    """
    page = Page(entry_id)
    shown = {key: _shown(content[key]) for key in keys}
    about = {key: size.of(key) * 2 + _ABOUT_A_TEXT for key in keys}
    whole = sum(size.of(shown[key]) for key in keys)
    said = sum(about.values())
    fits = not offset and whole <= size.whole and said <= size.most - size.texts
    room = size.whole if fits else size.texts
    for number, key in enumerate(keys):
        text = shown[key]
        if offset and offset >= len(text):
            raise Invalid(
                f"{key} has {len(text)} characters, so there is no text from {offset} on",
                hint="omit `offset` to start at its beginning",
            )
        media = None if offset else media_of(content[key])
        if media is not None and media.why_not_shown() is None:
            taken = sum(len(one.data) for one in page.pictures.values())
            if taken + len(media.data) > LARGEST_PICTURE:
                return _ended(page, shown, keys[number:], 0)
            page.pictures[key] = media
        if not fits and page.texts:
            room -= about[key]
        given = size.cut(text[offset:], room)
        if not given and len(text) > offset:
            page.pictures.pop(key, None)
            return _ended(page, shown, keys[number:], 0)
        page.texts[key] = given
        if offset + len(given) < len(text):
            return _ended(page, shown, keys[number:], offset + len(given))
        room, offset = room - size.of(given), 0
    return page


def _shown(value: Any) -> str:
    """Return a value as text for a model: itself, JSON, or a description of base64 content."""
    media = media_of(value)
    return text_of_value(_without_base64(value)) if media is None else _described(media)


def _without_base64(value: Any, depth: int = _DEEPEST) -> Any:
    """Return the same list or object with descriptions in place of base64 content."""
    if not isinstance(value, dict | list) or not depth:
        return value
    if isinstance(value, list):
        return [_member(one, depth) for one in value]
    return {key: _member(one, depth) for key, one in value.items()}


def _member(value: Any, depth: int) -> Any:
    media = media_of(value)
    return _without_base64(value, depth - 1) if media is None else _described(media)


def text_of_value(value: Any) -> str:
    """Return a value as text: itself, or JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "[nested too deeply to be shown; `bsd show AGENT/SESSION --entry ID --full` can]"


def matching(name: str, keys: Iterable[str]) -> list[str]:
    """Return the keys that a name selects: a name is a whole path, or one segment of it."""
    return [key for key in keys if names_value(name, parse_path(key))]


def _ended(page: Page, shown: Mapping[str, str], left: Sequence[str], offset: int) -> Page:
    characters = sum(len(shown[key]) for key in left) - offset
    return replace(page, following=tuple(left), offset=offset, left=characters)


def _described(media: Media) -> str:
    why = media.why_not_shown()
    what = "picture" if media.media_type.startswith("image/") else "file"
    if why is None:
        return f"[a {what}: {media.media_type}, {media.size} bytes]"
    get = "a person gets it by `bsd show AGENT/SESSION --entry ID --key KEY`"
    return f"[a {what} that is not shown: {media.media_type}, {media.size} bytes; {why}; {get}]"


# --- the values of an entry ---

Content = Mapping[str, Any]  # key → value
Inline = tuple[Content, frozenset[str]]  # values, and the keys of values not sent to the model


@dataclass(frozen=True, slots=True)
class Held:
    """The values of an entry: the extracted ones, and a function that returns the inline ones."""

    entry_id: str
    away: Content  # extracted values
    unavailable: Mapping[str, str]  # key → text to show instead
    inline: Callable[[], Inline]
    display: frozenset[str] = frozenset()  # keys of extracted values never sent to the model

    def page(
        self, keys: Sequence[str] | None, offset: int = 0, size: PageSize = OTHERS
    ) -> dict[str, Any]:
        """Return a page as JSON, with the requested keys whose values are unavailable.

        Args:
            keys: None: all extracted values that the model was sent; copies of them are only
                named.
            offset: characters of the first value that are skipped.
            size: the size of a page.

        Raises:
            Invalid: a key does not exist, or the offset is not within the first value.
        """
        if keys is None:
            return self._page_of_all(None, offset, size)
        if tuple(keys[1:]) == (AND_ALL_AFTER,):
            return self._page_of_all(keys[0], offset, size)
        values, lost = self._named(keys)
        page = page_of(self.entry_id, values, list(values), offset, size)
        return _page_document(page, {}, lost)

    def _page_of_all(self, first: str | None, offset: int, size: PageSize) -> dict[str, Any]:
        """Return a page of all values that the model was sent, from the key `first` on."""
        known, display = self.away, self.display
        is_inline = not (self.away or self.unavailable) if first is None else first not in known
        if is_inline:
            known, display = self.inline()
        wanted, beside = _sent_and_beside(known, display)
        lost = self.unavailable
        if first is not None:
            if first not in wanted:
                return self.page((first,), offset, size)
            wanted, beside, lost = wanted[wanted.index(first) :], {}, {}
        page = page_of(self.entry_id, known, wanted, offset, size)
        return _page_document(page, beside, lost, in_order=True)

    def value(self, key: str) -> tuple[str, Any]:
        """Return the key and the whole value of a name.

        Raises:
            Invalid: no value, or more than one, has this name.
            Conflict: the value is unavailable.
        """
        is_away = matching(key, [*self.away, *self.unavailable])
        known = self.away if is_away else self.inline()[0]
        found = matching(key, known)
        if len(found) == 1:
            return found[0], known[found[0]]
        for lost in matching(key, self.unavailable):
            raise Conflict(f"{lost}: {self.unavailable[lost]}", hint="`bsd verify` shows details")
        which = "names several values" if found else "is none of its values"
        keys = ", ".join(found or [*self.away, *self.unavailable] or known) or "none"
        raise Invalid(f"entry {self.entry_id}: {key} {which}", hint=f"one of {keys}")

    def _named(self, keys: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values of these names, and the unavailable ones; raises Invalid."""
        values: dict[str, Any] = {}
        lost: dict[str, str] = {}
        unknown: list[str] = []
        for name in keys:
            found = {key: self.away[key] for key in matching(name, self.away)}
            gone = {key: self.unavailable[key] for key in matching(name, self.unavailable)}
            if not found and not gone:
                inline, _ = self.inline()
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
        return values, lost


def _sent_and_beside(known: Content, display: frozenset[str]) -> tuple[list[str], dict[str, str]]:
    """Return the keys of values that the model was sent, and a note for each other key.

    If the model was sent none of the values, the first key of each text counts as sent.
    """
    sent = [key for key in known if key not in display]
    texts: dict[str, str] = {}  # the first key with a text
    for key in sent:
        texts.setdefault(text_of_value(known[key]), key)
    wanted, beside = list(sent), {}
    for key in (one for one in known if one in display):
        text = text_of_value(known[key])
        if (same := texts.setdefault(text, key)) != key:
            beside[key] = f"the same as {same}"
        elif sent:
            beside[key] = f"{len(text)} characters that only the program shows; `keys` gets them"
        else:
            wanted.append(key)
    return wanted, beside


def _page_document(
    page: Page,
    beside: Mapping[str, str],
    lost: Mapping[str, str],
    *,
    in_order: bool = False,
) -> dict[str, Any]:
    document = page.as_json(in_order=in_order)
    if beside:
        document["beside"] = dict(list(beside.items())[:_MOST_KEYS])
        if (more := len(beside) - _MOST_KEYS) > 0:
            document["beside"][AND_ALL_AFTER] = f"{more} more"
    if lost:
        document["unavailable"] = dict(lost)
    return document


def held_by(source: Transcript, fmt: TranscriptFormat, entry: str, stored: OriginalStore) -> Held:
    """Return the values of an entry; raises NotFound, Conflict, LeftAlone, Busy."""
    return _held(
        lambda: extracted_content(source, fmt, entry, stored),
        lambda: _inline(source, fmt, entry),
    )


def _held(away: Callable[[], ExtractedContent], inline: Callable[[], tuple[str, Inline]]) -> Held:
    try:
        found = away()
    except (LeftAlone, Busy):
        raise
    except Conflict:
        entry_id, values = inline()  # raises the same error, unless all of the entry is inline
        return Held(entry_id, {}, {}, lambda: values)
    entry_id = found.entry_id or f"#{found.index}"
    return Held(entry_id, found.content, found.unavailable, lambda: inline()[1], found.display)


def _inline(source: Transcript, fmt: TranscriptFormat, entry: str) -> tuple[str, Inline]:
    located = locate_copies(source, fmt, entry)[0]
    known = fmt.values(located.entry)
    values = {format_path(one.path): value_at(located.entry, one.path) for one in known}
    display = frozenset(format_path(one.path) for one in known if one.display)
    return located.info.id or f"#{located.line.index}", (values, display)


# --- read_extracted ---

# A note, by key, for each value that was not sent to the model.
Beside = Annotated[
    dict[str, str],
    Field(description="A note for each value that was not sent to the model, by key"),
    OMIT_EMPTY,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOut:
    """Texts by key; `next` has the arguments of the call for the next page, if there is one."""

    session: str
    entry_id: str
    texts: dict[str, str]
    pictures: Annotated[
        dict[str, dict[str, str]], Field(description="media_type and data, by key"), OMIT_EMPTY
    ] = field(default_factory=dict)
    characters_left: Annotated[int | None, OMIT_EMPTY] = None
    next: Annotated[dict[str, Any], OMIT_EMPTY] = field(default_factory=dict)
    beside: Beside = field(default_factory=dict)
    unavailable: Annotated[dict[str, str], OMIT_EMPTY] = field(default_factory=dict)


def read_extracted(
    context: ActionContext,
    session: SessionName,
    entry: str,
    keys: Sequence[str] | None = None,
    *,
    offset: int = 0,
    size: PageSize = OTHERS,
) -> ReadOut:
    """Read a page of the texts of an entry that a model was sent; changes nothing.

    Args:
        entry: the id in the placeholder [[extracted-ID]], or `#` and a line number.
        keys: only these values, by path or one segment of it; None: all extracted values that were
            sent to the model.
        offset: characters of the first text that are skipped; `next` of the page before has it.
        size: the size of a page.

    Raises:
        NotFound: there is no such session or entry.
        Invalid: a key names no value, or the offset is not within the first text.
    """
    with context.reader(session) as opened:
        return read_page(opened, entry, keys, offset, size)


def read_page(
    opened: OpenSession,
    entry: str,
    keys: Sequence[str] | None = None,
    offset: int = 0,
    size: PageSize = OTHERS,
) -> ReadOut:
    """Read a page of an entry's texts from an open session, as `read_extracted` does."""
    held = held_by(opened.transcript, opened.format, entry, opened.store)
    page = held.page(keys, offset, size)
    return ReadOut(session=str(opened.name), entry_id=held.entry_id, **page)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHeld(ReadOut):
    """The answer of `read_held`: a page, and whether values of the entry are extracted.

    If no value is extracted, the first page is empty, except in a session that bsd only reads: its
    program may have cleared the values from the model's context.
    """

    is_away: bool
    read_only: Annotated[str | None, OMIT_EMPTY] = None  # why bsd never changes the session


def read_held(
    context: ActionContext,
    session: SessionName,
    entry: str,
    keys: Sequence[str] | None = None,
    *,
    offset: int = 0,
    size: PageSize = OTHERS,
) -> ReadHeld:
    """Read as `read_extracted` does, and return whether the entry is extracted.

    If it is not, the first page is empty, since the session has the texts, except in a session
    that its program keeps in a database.
    """
    in_database = database_with(context.layout, session) is not None
    with context.reader(session) as opened:
        held = held_by(opened.transcript, opened.format, entry, opened.store)
        is_away = bool(held.away or held.unavailable)
        page: dict[str, Any] = {"texts": {}}
        if is_away or offset or in_database:
            page = held.page(keys, offset, size)
        return ReadHeld(
            session=str(session),
            entry_id=held.entry_id,
            is_away=is_away,
            read_only=opened.left_alone if in_database else None,
            **page,
        )


# --- show_extracted ---


@dataclass(frozen=True, slots=True)
class InPieces:
    """A JSON document with the fields of `ExtractedContent`, as bytes and spans of `file`."""

    parts: tuple[bytes | Span, ...]
    file: Path | None = None
    state: Written | None = None  # of the file at the time when its hash was checked


def show_extracted(context: ActionContext, session: SessionName, entry: str) -> InPieces:
    """Return the extracted values of an entry as they are stored, without restoring them.

    The stored line is held in memory as a whole, but not parsed.

    Raises:
        NotFound: there is no such session or entry.
        Conflict: no value of the entry is extracted.
    """
    with context.reader(session) as opened:
        source, fmt, store = opened.transcript, opened.format, opened.store
        located = locate_copies(source, fmt, entry)[0]
        marker = Marker.of(located.entry)
        own = _read_own(store, marker) if marker and _is_of(store, marker, located) else None
        if marker is None or own is None:
            # The marker was dropped or names the original of another store: search all stores.
            found = extracted_content(source, fmt, located.name, store)
            return InPieces((document(as_json(found)),))
    return _in_pieces(located, marker, *own)


def _in_pieces(
    located: Located, marker: Marker, line: bytes, path: Path, state: Written
) -> InPieces:
    head = {
        "entry_id": located.info.id,
        "index": located.line.index,
        "ref": marker.ref,
        "extracted_at": marker.at,
        "size_bytes": marker.size,
    }
    paths = paths_of(marker.keys)
    spans = _spans(line, paths.values())
    known = {key: spans[at] for key, at in paths.items() if at in spans}
    missing = {key: UNAVAILABLE[Missing.CORRUPT] for key in paths if key not in known}
    parts: list[bytes | Span] = [document(head)[:-1] + b',"content":{']
    for number, (key, span) in enumerate(known.items()):
        parts += [b"," * bool(number) + orjson.dumps(key) + b":", span]
    parts.append(b'},"unavailable":' + orjson.dumps(missing) + b"}")
    return InPieces(tuple(parts), path, state)


def _is_of(store: SessionStore, marker: Marker, located: Located) -> bool:
    """Return True if a marker names a line that the session's own store has for this entry."""
    places = store.of_entry(located.info.id) if located.info.id else []
    named = (marker.ref, marker.hash)
    return any(store.is_own(place) and (place.ref, place.hash) == named for place in places)


def _read_own(store: SessionStore, marker: Marker) -> tuple[bytes, Path, Written] | None:
    """Return the stored line of a marker, its file and the file's state; None if it is damaged."""
    try:
        path = store.file(marker.ref)
        file = plain_file(path)
    except (OSError, Invalid):
        return None
    with file, suppress(OSError):
        # A large line is read into memory only after its hash is found to match.
        if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == marker.hash:
            file.seek(0)
            return file.read(), path, Written.of(os.fstat(file.fileno()))
    return None


def _spans(line: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    wanted = list(paths)
    try:
        return find(line, wanted)
    except SpliceError:
        if len(wanted) <= 1:
            return {}
    # A path that does not exist must not hide the values of the others.
    return {path: span for one in wanted for path, span in _spans(line, [one]).items()}

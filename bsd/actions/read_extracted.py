"""Extracted values of an entry, without putting them back; a session in use is not waited for.

read_extracted gives the texts that a model was sent, a page at a time. Extracted values come from
the store, others from the session itself: a text that came back after its first page was read must
still have a second page. read_held is the same for a caller that puts the values back as well.
show_extracted gives the values as they are stored: an interface sends them from their file, piece
by piece.
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

AND_ALL_AFTER = "…"  # after a key, in place of all keys that follow it
_MOST_KEYS = 20  # that an answer names beside those whose texts it gives
_ABOUT_A_TEXT = 60  # characters that an answer says of each text, beside its key
_DEEPEST = 100  # levels of lists and objects in which pictures are looked for


@dataclass(frozen=True, slots=True)
class Page:
    """Some of an entry's values, and where the rest begins.

    A picture stands under `pictures`, and under `texts` what it is; of other content in base64 only
    the latter. Anything else that is no text is JSON there.
    """

    entry_id: str
    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Media] = field(default_factory=dict)
    following: tuple[str, ...] = ()  # keys of which there is more; the first one may be cut
    offset: int = 0  # so many characters of that one have been given
    left: int = 0  # characters of all of them that have not

    def as_json(self, *, in_order: bool = False) -> dict[str, Any]:
        """The fields of the contract; those that say nothing are left out.

        `in_order`: the keys are those of the entry in their order, so that many need not be named.
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
    """A page of the values with these keys; `offset` characters of the first are passed over.

    Raises Invalid for an offset behind the end.
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
                f"{key} has {len(text)} characters, so there is nothing from {offset} on",
                hint="leave `offset` out to begin at its beginning",
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
    """A value in the form for a model: itself, JSON, or for content in base64 its kind."""
    media = media_of(value)
    return text_of_value(_without_base64(value)) if media is None else _described(media)


def _without_base64(value: Any, depth: int = _DEEPEST) -> Any:
    """The same list or object with descriptions in place of content in base64."""
    if not isinstance(value, dict | list) or not depth:
        return value
    if isinstance(value, list):
        return [_member(one, depth) for one in value]
    return {key: _member(one, depth) for key, one in value.items()}


def _member(value: Any, depth: int) -> Any:
    media = media_of(value)
    return _without_base64(value, depth - 1) if media is None else _described(media)


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
Inline = tuple[Content, frozenset[str]]  # values, and the keys of those the model is not sent


@dataclass(frozen=True, slots=True)
class Held:
    """What an entry holds, or held: values that are away, and how those that are not are had."""

    entry_id: str
    away: Content
    unavailable: Mapping[str, str]  # key → text to show instead
    inline: Callable[[], Inline]
    display: frozenset[str] = frozenset()  # those away that the model was never sent

    def page(
        self, keys: Sequence[str] | None, offset: int = 0, size: PageSize = OTHERS
    ) -> dict[str, Any]:
        """A page as JSON; of keys that were asked for, also those that cannot be had.

        No `keys` means all extracted values that the model was sent; copies of it are named. Raises
        Invalid for keys that are none, and for an offset behind the end.
        """
        if keys is None:
            return self._page_of_all(None, offset, size)
        if tuple(keys[1:]) == (AND_ALL_AFTER,):
            return self._page_of_all(keys[0], offset, size)
        values, lost = self._named(keys)
        page = page_of(self.entry_id, values, list(values), offset, size)
        return _page_document(page, {}, lost)

    def _page_of_all(self, first: str | None, offset: int, size: PageSize) -> dict[str, Any]:
        """A page of all that the model was sent, from the key `first` on if there is one."""
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
        """One value and its key, whole; raises Invalid, and Conflict if it cannot be had."""
        is_away = matching(key, [*self.away, *self.unavailable])
        known = self.away if is_away else self.inline()[0]
        found = matching(key, known)
        if len(found) == 1:
            return found[0], known[found[0]]
        for lost in matching(key, self.unavailable):
            raise Conflict(f"{lost}: {self.unavailable[lost]}", hint="`bsd verify` says more")
        which = "names several values" if found else "is none of its values"
        keys = ", ".join(found or [*self.away, *self.unavailable] or known) or "none"
        raise Invalid(f"entry {self.entry_id}: {key} {which}", hint=f"one of {keys}")

    def _named(self, keys: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The values that these names mean, and those that cannot be had; raises Invalid."""
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
    """The keys of values that the model was sent, and for the other keys the kind of each.

    If it was sent none of them, each text among them is given once.
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
    """Return the values of an entry that can be had; raises NotFound, Conflict, LeftAlone, Busy."""
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
        entry_id, values = inline()  # raises the same, unless all of the entry is inline
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

# By key, the kind of each value that the model was not sent.
Beside = Annotated[
    dict[str, str],
    Field(description="Of what the model was not sent, what each value is, by key"),
    OMIT_EMPTY,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOut:
    """Texts by key; `next` says how to ask for the rest, if there is any."""

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
    """Read the texts that a model was sent of an entry, a page at a time; nothing is changed.

    Args:
        entry: the id in the placeholder [[extracted-ID]], or `#` and a line number.
        keys: only these values, by path or one segment of it; None: all that is extracted and was
            sent to the model.
        offset: so many characters of the first text are passed over, as `next` says.
        size: how large a page is.

    Raises:
        NotFound: there is no such session or entry.
        Invalid: a key names no value, or the offset is behind the end.
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
    """Read a page of an entry's texts, as `read_extracted` does, of a session that is open."""
    held = held_by(opened.transcript, opened.format, entry, opened.store)
    page = held.page(keys, offset, size)
    return ReadOut(session=str(opened.name), entry_id=held.entry_id, **page)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHeld(ReadOut):
    """A page, unless nothing of the entry is away and the first one was asked for."""

    is_away: bool


def read_held(
    context: ActionContext,
    session: SessionName,
    entry: str,
    keys: Sequence[str] | None = None,
    *,
    offset: int = 0,
    size: PageSize = OTHERS,
) -> ReadHeld:
    """Read as `read_extracted` does, and tell whether the entry is extracted.

    If it is not, the first page is empty: the texts stand in the session.
    """
    with context.reader(session) as opened:
        held = held_by(opened.transcript, opened.format, entry, opened.store)
        is_away = bool(held.away or held.unavailable)
        page: dict[str, Any] = {"texts": {}}
        if is_away or offset:
            page = held.page(keys, offset, size)
        return ReadHeld(session=str(session), entry_id=held.entry_id, is_away=is_away, **page)


# --- show_extracted ---


@dataclass(frozen=True, slots=True)
class InPieces:
    """A JSON document, with the fields of `ExtractedContent`: spans are those of a file."""

    parts: tuple[bytes | Span, ...]
    file: Path | None = None
    state: Written | None = None  # of the file, when its hash was compared


def show_extracted(context: ActionContext, session: SessionName, entry: str) -> InPieces:
    """Show the extracted values of an entry, as they are stored, without putting them back.

    The stored line is held in memory whole, but not parsed.

    Raises:
        NotFound: there is no such session or entry.
        Conflict: nothing of the entry is extracted.
    """
    with context.reader(session) as opened:
        source, fmt, store = opened.transcript, opened.format, opened.store
        located = locate_copies(source, fmt, entry)[0]
        marker = Marker.of(located.entry)
        own = _read_own(store, marker) if marker and _is_of(store, marker, located) else None
        if marker is None or own is None:
            # Where a marker was dropped, or names the original of another store, looking takes
            # more.
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
    """Whether a marker names a line that is stored for this very entry, by the index of stores."""
    places = store.of_entry(located.info.id) if located.info.id else []
    named = (marker.ref, marker.hash)
    return any(store.is_own(place) and (place.ref, place.hash) == named for place in places)


def _read_own(store: SessionStore, marker: Marker) -> tuple[bytes, Path, Written] | None:
    """The line that a marker names, its file and the state of that, if the content is right."""
    try:
        path = store.file(marker.ref)
        file = plain_file(path)
    except (OSError, Invalid):
        return None
    with file, suppress(OSError):
        # A large one is not held in memory before it is known to be the right one.
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
    # One that is not there shall not hide the others.
    return {path: span for one in wanted for path, span in _spans(line, [one]).items()}

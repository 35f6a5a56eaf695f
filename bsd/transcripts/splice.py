"""Byte-exact edits of one raw JSON line (SPEC §2.1).

Only the bytes of the named values change. White space, escapes, number formats, duplicate keys and
the line end stay as they are: a line is parsed and written again only if this reproduces its bytes;
otherwise the values are searched for in the raw line. `parse_entry` must accept the lines. All
functions raise SpliceError if a line must stay as it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import orjson

from bsd.transcripts.spans import (
    Member,
    NoSuchValue,
    ScanResult,
    Search,
    SpliceError,
    ValuePath,
    encode_key,
    format_path,
    scan,
)

__all__ = [
    "NoSuchValue",
    "Span",
    "SpliceError",
    "Stood",
    "edit",
    "edit_and_measure",
    "encode_string",
    "find",
    "text_size",
    "text_sizes",
]


# An escape: of a pair of surrogates, of any other number, or of one character.
_ESCAPE = re.compile(
    rb"\\(?:(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|.)",
    re.DOTALL,
)
_LONG = 1 << 20  # bytes
# All bytes except UTF-8 continuation bytes.
_NOT_CONTINUING = bytes(set(range(256)).difference(range(0x80, 0xC0)))


class Span(NamedTuple):
    """The bytes `[start, end)` of a line."""

    start: int
    end: int


class Stood(NamedTuple):
    """The size of a value before it was replaced or removed."""

    length: int  # bytes of its JSON in the line
    size: int  # bytes in UTF-8 of its text; for other values: of its JSON
    characters: int  # characters of the same text


def find(raw: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    """Return the spans of the values at `paths`; raises NoSuchValue, SpliceError."""
    wanted = tuple(paths)
    found = scan(raw, Search.of(wanted))
    return {path: Span(*found.span(path)) for path in wanted}


def edit(
    raw: bytes,
    *,
    replace: Mapping[ValuePath, bytes] | None = None,
    remove: Collection[ValuePath] = (),
    reinsert: Collection[ValuePath] = (),
    original: bytes = b"",
    put: Mapping[str, bytes] | None = None,
) -> bytes:
    """Apply all edits of one line in one pass, as if in the order of the parameters.

    Args:
        raw: the line.
        replace: the new JSON of values.
        remove: members to remove.
        reinsert: members to take from the line `original` and put back at their old places.
        original: the line that contains the members of `reinsert`.
        put: top-level members to set; new members follow all others.

    Returns:
        The edited line.

    Raises:
        NoSuchValue: a value to be edited is missing.
        SpliceError: a path equals or contains another path, or a member of `reinsert` exists.
    """
    return _edited(raw, replace or {}, remove, tuple(reinsert), original, put or {})


def edit_and_measure(
    raw: bytes,
    *,
    replace: Mapping[ValuePath, bytes],
    remove: Collection[ValuePath] = (),
    put: Mapping[str, bytes] | None = None,
) -> tuple[bytes, dict[ValuePath, Stood]]:
    """As `edit`; also return the former sizes of the replaced and removed values."""
    stood: dict[ValuePath, Stood] = {}
    return _edited(raw, replace, remove, (), b"", put or {}, stood), stood


def _edited(
    raw: bytes,
    replace: Mapping[ValuePath, bytes],
    remove: Collection[ValuePath],
    back: tuple[ValuePath, ...],
    original: bytes,
    put: Mapping[str, bytes],
    stood: dict[ValuePath, Stood] | None = None,
) -> bytes:
    """As `edit`; adds the sizes of the replaced and removed values to `stood`."""
    for value in (*replace.values(), *put.values()):
        if not value or b"\n" in value:
            raise ValueError(f"not a JSON value that fits in a line: {value[:40]!r}")
    put_paths = [(key,) for key in put]
    paths = (*replace, *remove, *back, *put_paths)
    _apart(paths, (*remove, *back), listed=False)
    if not back and (line := _written_again(raw, replace, remove, put, stood)) is not None:
        return line
    found, listed = _look(raw, paths, remove, back)
    if stood is not None:
        for path in (*replace, *remove):
            json_ = raw[slice(*found.span(path))]
            stood[path] = Stood(len(json_), *text_sizes(json_))
    patches: list[Patch] = [(*found.span(path), value) for path, value in replace.items()]
    objects = _Objects(raw, found, listed=listed)
    for path in remove:
        found.span(path)
        objects.remove(path)
    objects.reinsert(back, original)
    for key, value in put.items():
        if found.has((key,)):
            patches.append((*found.span((key,)), value))
        else:
            objects.add(encode_string(key) + b":" + value)
    return _patched(raw, [*patches, *objects.patches()])


def _written_again(
    raw: bytes,
    replace: Mapping[ValuePath, bytes],
    remove: Collection[ValuePath],
    put: Mapping[str, bytes],
    stood: dict[ValuePath, Stood] | None,
) -> bytes | None:
    """Edit a line by parsing and writing it; None if writing does not reproduce its bytes.

    Most programs write lines that orjson reproduces, and this takes half the time of a search. An
    unedited value keeps its bytes, since its form does not depend on other values.
    """
    body = raw.rstrip(b" \t\r\n")
    if len(body) > _LONG:  # parsing it would take several times its size in memory
        return None
    try:
        entry = orjson.loads(body)
        if orjson.dumps(entry) != body:
            return None
        for path in (*replace, *remove):
            *way, last = path
            holder = entry
            for step in way:
                holder = holder[step]
            value = holder[last]
            if stood is not None:
                stood[path] = _measured(value)
            if path in replace:
                holder[last] = orjson.Fragment(replace[path])
            else:
                del holder[last]
        for key, value in put.items():
            entry[key] = orjson.Fragment(value)
        return orjson.dumps(entry) + raw[len(body) :]
    except (ValueError, TypeError, LookupError):  # the search finds and reports the problem
        return None


def _measured(value: object) -> Stood:
    json_ = orjson.dumps(value)
    if not isinstance(value, str):
        return Stood(len(json_), *text_sizes(json_))
    size = len(value) if value.isascii() else len(value.encode())
    return Stood(len(json_), size, len(value))


def _look(
    raw: bytes,
    paths: tuple[ValuePath, ...],
    remove: Collection[ValuePath],
    back: tuple[ValuePath, ...],
) -> tuple[ScanResult, bool]:
    """Find all that an edit names; return whether the members of objects had to be listed.

    Usually the end of the preceding member is enough. Members are listed if one is put back, the
    first member is removed, or the object has no member yet.
    """
    members = (*remove, *back)
    if not back:
        found = scan(raw, _apart(paths, members, listed=False))
        if found.last_end >= 0 and not _is_first(found, remove):
            return found, False
    return scan(raw, _apart(paths, members, listed=True)), True


def _is_first(found: ScanResult, members: Collection[ValuePath]) -> bool:
    """Return whether a member is the first of its object."""
    for path in members:  # noqa: SIM110 - `any` takes longer than all the rest
        if found.has(path) and found.end_before(path) < 0:
            return True
    return False


def text_size(raw: bytes) -> int:
    """Return the bytes in UTF-8 of the text in a JSON string; for other values: of the JSON."""
    return text_sizes(raw)[0]


def text_sizes(raw: bytes) -> tuple[int, int]:
    """As `text_size`; also return the number of characters."""
    is_text = raw[:1] == b'"'
    size = len(raw) - 2 if is_text else len(raw)
    has_escapes = is_text and b"\\" in raw
    if raw.isascii() and not has_escapes:
        return size, size
    if is_text and len(raw) <= _LONG:
        with suppress(orjson.JSONDecodeError):  # a lone surrogate
            text = orjson.loads(raw)
            return len(text) if text.isascii() else len(text.encode()), len(text)
    # A long text would be several times as large once decoded.
    characters = size - len(raw.translate(None, _NOT_CONTINUING))
    for escape in _ESCAPE.finditer(raw) if has_escapes else ():
        bytes_ = 1
        if escape[1]:
            bytes_ = 4
        elif escape[2]:
            code = int(escape[2], 16)
            bytes_ = 1 if code < 0x80 else 2 if code < 0x800 else 3
        size += bytes_ - len(escape[0])
        characters += 1 - len(escape[0])
    return size, characters


def encode_string(text: str) -> bytes:
    """Return a JSON string that every parser accepts; lone surrogates become escapes."""
    try:
        return orjson.dumps(text)
    except TypeError:  # orjson writes UTF-8, which has no surrogates
        return json.dumps(text).encode()


# --- lines that keep their length (`TranscriptFormat.keeps_length`) ---

LENGTHS_STAY = "its program keeps byte offsets into the session"


class NoRoom(SpliceError):
    """An edit would make a line longer, in a session whose lines keep their lengths."""

    def __init__(self, hint: str) -> None:
        super().__init__(
            f"a line of this session must not become longer: {LENGTHS_STAY}", hint=hint
        )


def with_length(line: bytes, length: int) -> bytes:
    """Return a line with as much white space before its last brace as `length` bytes need.

    Raises NoRoom if the line is longer without that white space.
    """
    more, brace = length - len(line), line.rfind(b"}")
    if -more > room(line):
        raise NoRoom("use a shorter text")
    return line[: brace + min(more, 0)] + b" " * more + line[brace:]


def room(line: bytes) -> int:
    """Return the number of spaces before the last brace of a line."""
    inside = line[: line.rfind(b"}")]
    return len(inside) - len(inside.rstrip(b" "))


class _Objects:
    """The objects of one line whose members are edited."""

    def __init__(self, raw: bytes, found: ScanResult, *, listed: bool) -> None:
        self._raw = raw
        self._found = found
        self._listed = listed
        self._members: dict[ValuePath, Members] = {}  # used if members are listed
        self._gone: list[Patch] = []  # used otherwise
        self._added = b""

    def remove(self, path: ValuePath) -> None:
        """Remove a member."""
        if self._listed:
            self._around(path[:-1]).remove(encode_key(str(path[-1])))
        else:
            self._gone.append((self._found.end_before(path), self._found.span(path)[1], b""))

    def add(self, text: bytes) -> None:
        """Add a member to the line's own object, after all others."""
        if self._listed:
            self._around(()).append(text)
        else:
            self._added += b"," + text

    def reinsert(self, paths: tuple[ValuePath, ...], original: bytes) -> None:
        """Put members back; members must be listed."""
        if not paths:
            return
        old = scan(original, _apart(paths, paths, listed=True))
        for path in paths:
            if self._found.has(path):
                raise SpliceError(f"the line has a value {format_path(path)} already")
            old.span(path)
            self._around(path[:-1]).reinsert(encode_key(str(path[-1])), original, old)

    def patches(self) -> list[Patch]:
        """Return the changes between the members that stay."""
        if self._listed:
            return [patch for members in self._members.values() for patch in members.patches()]
        end = self._found.last_end
        return [*self._gone, (end, end, self._added)] if self._added else self._gone

    def _around(self, holder: ValuePath) -> Members:
        if holder not in self._members:
            self._members[holder] = Members(self._raw, self._found, holder)
        return self._members[holder]


@lru_cache(maxsize=128)
def _apart(paths: tuple[ValuePath, ...], members: tuple[ValuePath, ...], *, listed: bool) -> Search:
    """Return the search for these values, none of which may be or contain another.

    `members` are to be removed from their objects or put back. `listed`: record all members of
    these objects, for `Members`.
    """
    for path in members:
        if not path or isinstance(path[-1], int):
            raise SpliceError(f"{format_path(path)!r} is not a member of an object")
    search = Search(paths, {path[:-1] for path in members} if listed else ())
    if len(set(paths)) < len(paths):
        raise SpliceError("an edit names the same value twice")
    for path in paths:
        if any(isinstance(step, int) and step < 0 for step in path):
            raise NoSuchValue(f"{format_path(path)!r} counts from the end")
        if search[path].children:
            raise SpliceError(f"{format_path(path)} is edited, and a value inside it too")
    return search


def _patched(raw: bytes, patches: list[Patch]) -> bytes:
    view = memoryview(raw)  # slices without copying, since a line may be large
    pieces: list[bytes | memoryview] = []
    done = 0
    for start, end, new in sorted(patches):
        pieces += (view[done:start], new)
        done = end
    return b"".join((*pieces, view[done:]))


# --- elements of an array: removal with their commas, and insertion at the front ---


def elements(raw: bytes, path: ValuePath, count: int) -> list[bytes]:
    """Return the bytes of an array's first `count` elements; raises NoSuchValue, SpliceError."""
    spans = find(raw, [(*path, at) for at in range(count)])
    return [raw[slice(*spans[*path, at])] for at in range(count)]


def remove_elements(raw: bytes, path: ValuePath, count: int, gone: Collection[int]) -> bytes:
    """Remove the elements `gone` from an array of `count`; all other bytes stay.

    Raises SpliceError.
    """
    if not gone:
        return raw
    found = find(raw, [path, *((*path, at) for at in range(count))])
    spans = [found[*path, at] for at in range(count)]
    array = found[path]
    kept = [at for at in range(count) if at not in gone]
    pieces = [raw[: array.start + 1]]
    for turn, at in enumerate(kept):
        # An element keeps the separator after it, unless it becomes the last one.
        last = turn == len(kept) - 1
        end = spans[at].end if last else spans[at + 1].start
        pieces.append(raw[_start(spans, array, at, first=turn == 0) : end])
    tail = spans[-1].end
    return b"".join([*pieces, raw[tail:]])


def prepend_elements(raw: bytes, path: ValuePath, new: Sequence[bytes], *, empty: bool) -> bytes:
    """Insert elements at the front of an array; `empty`: the array has none yet."""
    if not new:
        return raw
    at = find(raw, [path])[path].start + 1
    return raw[:at] + b",".join(new) + (b"" if empty else b",") + raw[at:]


def _start(spans: Sequence[Span], array: Span, at: int, *, first: bool) -> int:
    """Return the offset at which an element's bytes begin; white space at the front stays."""
    if first and at == 0:
        return array.start + 1
    return spans[at].start


# --- members of one object: removal, return to their old place, addition at the end ---

# A removed member takes its separator along: the comma and white space *before* it, or, for the
# first member, those before its successor. So the result depends only on the members that stay, and
# each member can be put back exactly, in any order, from the original line.
Patch = tuple[int, int, bytes]  # replace the bytes [start, end) of the line


@dataclass(slots=True, eq=False)
class _Slot:
    """A member of the edited object: bytes [start, end) of the line, or new text."""

    key: bytes
    separator: bytes | None  # the text before it if it is not the first; None: a comma
    start: int = -1
    end: int = -1
    text: bytes | None = None


class Members:
    """The members of the object at `path`, as they are to become.

    Removing and putting back require that the object was searched for as a listed object; adding to
    the line's own object does not.
    """

    def __init__(self, raw: bytes, found: ScanResult, path: ValuePath) -> None:
        self._raw = raw
        self._found = found
        self._path = path
        self._added: list[bytes] = []
        self._margins: tuple[bytes, bytes] | None = None  # of the original line, if these come back
        self._turns: list[_Slot] | None = None  # set when a member is removed or put back

    @property
    def _slots(self) -> list[_Slot]:
        if self._turns is None:
            self._turns = [
                _Slot(key, separator, start, end)
                for (key, start, end), separator in _separated(
                    self._raw, self._found.members_of(self._path)
                )
            ]
        return self._turns

    def remove(self, key: bytes) -> None:
        """Remove a member, which must stand once in the object."""
        self._turns = [slot for slot in self._slots if slot.key != key]

    def append(self, text: bytes) -> None:
        """Add a member after all others; `text` is its key, colon and value."""
        self._added.append(text)

    def reinsert(self, key: bytes, original: bytes, there: ScanResult) -> None:
        """Put a member back at its place in this object of the original line.

        The place is after the nearest of its former predecessors that is still there, otherwise
        before the nearest of its former successors, otherwise at the front.
        """
        old = list(_separated(original, there.members_of(self._path)))
        names = _names(old_key for (old_key, _, _), _ in old)
        position = {name: index for index, name in enumerate(_names(s.key for s in self._slots))}
        turn = names.index((key, 0))
        (_, start, end), separator = old[turn]
        slot = _Slot(key, separator, text=original[start:end])
        predecessors = [position[name] for name in names[:turn] if name in position]
        if predecessors:
            self._slots.insert(predecessors[-1] + 1, slot)
            return
        for later in range(turn + 1, len(old)):
            if names[later] in position:
                successor = self._slots[position[names[later]]]
                slot.separator, successor.separator = successor.separator, old[later][1]
                self._slots.insert(position[names[later]], slot)
                return
        self._margins = _margins(original, there, self._path)
        self._slots.insert(0, slot)

    def patches(self) -> Iterator[Patch]:
        """Yield the changes between the members that stay, whose own bytes do not change."""
        if self._turns is not None:
            yield from self._gaps()
        elif (end := self._found.last_end) >= 0:
            yield end, end, b"".join(b"," + text for text in self._added)
        else:
            end = self._found.span(self._path)[1] - 1
            yield end, end, b",".join(self._added)

    def _gaps(self) -> Iterator[Patch]:
        slots = [*self._slots, *(_Slot(b"", None, text=text) for text in self._added)]
        start, end = self._found.span(self._path)
        before, after = self._margins or _margins(self._raw, self._found, self._path)
        if not self._slots:  # as if the members were removed first, and the others added then
            before, after = before + after, b""
        done, gap = start + 1, before
        for index, slot in enumerate(slots):
            if index:
                gap += b"," if slot.separator is None else slot.separator
            if slot.text is not None:
                gap += slot.text
                continue
            yield done, slot.start, gap
            done, gap = slot.end, b""
        yield done, end - 1, gap + after


def _margins(raw: bytes, found: ScanResult, path: ValuePath) -> tuple[bytes, bytes]:
    """Return the white space before the first member and after the last member."""
    start, end = found.span(path)
    members = found.members_of(path)
    if not members:
        return raw[start + 1 : end - 1], b""
    return raw[start + 1 : members[0][1]], raw[members[-1][2] : end - 1]


def _separated(raw: bytes, members: list[Member]) -> Iterator[tuple[Member, bytes | None]]:
    """Yield each member with the bytes between it and its predecessor; None for the first."""
    done = -1
    for member in members:
        yield member, (raw[done : member[1]] if done >= 0 else None)
        done = member[2]


def _names(keys: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """Number equal keys by occurrence: objects may have duplicate keys, which no edit names."""
    seen: Counter[bytes] = Counter()
    names = []
    for key in keys:
        names.append((key, seen[key]))
        seen[key] += 1
    return names

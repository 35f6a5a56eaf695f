"""Byte-exact surgery on one raw JSON line (SPEC §2.1).

Only the bytes of the named values change; white space, escapes, number forms, other duplicate
keys and the line end stay as they are: a line is written anew only where that gives its very
bytes, else the values are searched for in it. Raw lines must be such that `parse_entry` accepts
them. All functions raise a SpliceError if the line has to be left alone.
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


# An escape: of a pair of surrogates, of any other number, of one character.
_ESCAPE = re.compile(
    rb"\\(?:(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|.)",
    re.DOTALL,
)
_LONG = 1 << 20  # bytes
# All bytes but those that in UTF-8 begin no character.
_NOT_CONTINUING = bytes(set(range(256)).difference(range(0x80, 0xC0)))


class Span(NamedTuple):
    """Bytes `[start, end)` of a line."""

    start: int
    end: int


class Stood(NamedTuple):
    """How large a value was that an edit replaced or removed."""

    length: int  # bytes of its JSON, as it stood in the line
    size: int  # bytes in UTF-8 of its text; of a value that is no text, of its JSON
    characters: int  # of the same


def find(raw: bytes, paths: Iterable[ValuePath]) -> dict[ValuePath, Span]:
    """Return the spans of the values of `paths`; raises NoSuchValue, SpliceError."""
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
    """All edits of one line in one pass, as if made one after the other in this order.

    `reinsert` takes its members from the line `original`; `put` sets top-level members, and adds
    those that are new after all others. Raises NoSuchValue, and SpliceError if one
    path is or contains another, or a member to be put back is there.
    """
    return _edited(raw, replace or {}, remove, tuple(reinsert), original, put or {})


def edit_and_measure(
    raw: bytes,
    *,
    replace: Mapping[ValuePath, bytes],
    remove: Collection[ValuePath] = (),
    put: Mapping[str, bytes] | None = None,
) -> tuple[bytes, dict[ValuePath, Stood]]:
    """As `edit`, with the sizes of the values that were replaced or removed."""
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
    """As `edit`; `stood` gets the sizes of the replaced and removed values."""
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
    """The same for a line whose parsed entry, written, is the line itself; None for any other.

    Most programs write like that, and it takes half the time of finding the values. A value that is
    not edited comes out as it stood, since how it is written does not depend on the others.
    """
    body = raw.rstrip(b" \t\r\n")
    if len(body) > _LONG:  # it would take several times its size in memory
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
    except (ValueError, TypeError, LookupError):  # the search finds the problem
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
    """Find all that an edit names, and say whether the members of objects had to be listed.

    Mostly it is enough to know where the member before another one ends: not if one comes back,
    the first goes, or there is none yet.
    """
    members = (*remove, *back)
    if not back:
        found = scan(raw, _apart(paths, members, listed=False))
        if found.last_end >= 0 and not _is_first(found, remove):
            return found, False
    return scan(raw, _apart(paths, members, listed=True)), True


def _is_first(found: ScanResult, members: Collection[ValuePath]) -> bool:
    """Whether one of some members is the first of its object."""
    for path in members:  # noqa: SIM110 - `any` would take longer than all the rest
        if found.has(path) and found.end_before(path) < 0:
            return True
    return False


def text_size(raw: bytes) -> int:
    """Bytes in UTF-8 of the text in a JSON string; of any other value, of its JSON."""
    return text_sizes(raw)[0]


def text_sizes(raw: bytes) -> tuple[int, int]:
    """As `text_size`, and the characters of the same."""
    is_text = raw[:1] == b'"'
    size = len(raw) - 2 if is_text else len(raw)
    has_escapes = is_text and b"\\" in raw
    if raw.isascii() and not has_escapes:
        return size, size
    if is_text and len(raw) <= _LONG:
        with suppress(orjson.JSONDecodeError):  # half a pair of surrogates
            text = orjson.loads(raw)
            return len(text) if text.isascii() else len(text.encode()), len(text)
    # A long text, decoded, would be several times as large.
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
    """A JSON string that every reader takes, lone surrogates as escapes."""
    try:
        return orjson.dumps(text)
    except TypeError:  # orjson writes UTF-8, which has no surrogates
        return json.dumps(text).encode()


class _Objects:
    """The objects of one line whose members are edited, each once."""

    def __init__(self, raw: bytes, found: ScanResult, *, listed: bool) -> None:
        self._raw = raw
        self._found = found
        self._listed = listed
        self._members: dict[ValuePath, Members] = {}  # if they are listed
        self._gone: list[Patch] = []  # else
        self._added = b""

    def remove(self, path: ValuePath) -> None:
        """Take a member out."""
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
        """Put members back; only where they are listed."""
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
    """The search for all these values, of which none is or contains another.

    Those that are `members` are to be taken out of their objects, or put back; `listed` says that
    all members of these objects must be known for it.
    """
    for path in members:
        if not path or isinstance(path[-1], int):
            raise SpliceError(f"{format_path(path)!r} is not a member of an object")
    search = Search(paths, {path[:-1] for path in members} if listed else ())
    if len(set(paths)) < len(paths):
        raise SpliceError("one value is named twice in one edit")
    for path in paths:
        if any(isinstance(step, int) and step < 0 for step in path):
            raise NoSuchValue(f"{format_path(path)!r} counts from the end")
        if search[path].children:
            raise SpliceError(f"{format_path(path)} is edited, and a value inside it too")
    return search


def _patched(raw: bytes, patches: list[Patch]) -> bytes:
    view = memoryview(raw)  # slices without copying: a line may be large
    pieces: list[bytes | memoryview] = []
    done = 0
    for start, end, new in sorted(patches):
        pieces += (view[done:start], new)
        done = end
    return b"".join((*pieces, view[done:]))


# --- elements of an array: taken out with their commas, or put in front ---


def elements(raw: bytes, path: ValuePath, count: int) -> list[bytes]:
    """The bytes of an array's first `count` elements; raises NoSuchValue, SpliceError."""
    spans = find(raw, [(*path, at) for at in range(count)])
    return [raw[slice(*spans[*path, at])] for at in range(count)]


def remove_elements(raw: bytes, path: ValuePath, count: int, gone: Collection[int]) -> bytes:
    """Take some of an array's `count` elements out; all other bytes stay. Raises SpliceError."""
    if not gone:
        return raw
    found = find(raw, [path, *((*path, at) for at in range(count))])
    spans = [found[*path, at] for at in range(count)]
    array = found[path]
    kept = [at for at in range(count) if at not in gone]
    pieces = [raw[: array.start + 1]]
    for turn, at in enumerate(kept):
        # The separator before its successor goes with it only if there is no successor any more.
        last = turn == len(kept) - 1
        end = spans[at].end if last else spans[at + 1].start
        pieces.append(raw[_start(spans, array, at, first=turn == 0) : end])
    tail = spans[-1].end
    return b"".join([*pieces, raw[tail:]])


def prepend_elements(raw: bytes, path: ValuePath, new: Sequence[bytes], *, empty: bool) -> bytes:
    """Put elements in front of an array's; `empty` says that it has none yet."""
    if not new:
        return raw
    at = find(raw, [path])[path].start + 1
    return raw[:at] + b",".join(new) + (b"" if empty else b",") + raw[at:]


def _start(spans: Sequence[Span], array: Span, at: int, *, first: bool) -> int:
    """Return the place of an element's bytes; the white space at the array's start stays."""
    if first and at == 0:
        return array.start + 1
    return spans[at].start


# --- the members of one object under edit: taken out, put back at their old place, added at the end

# Of a member that goes, its separator goes too: the comma and white space *before* it, or, if it is
# the first, those before its successor. So the result depends only on the members that stay, and
# every member can be put back exactly, in any order, from the original line.
Patch = tuple[int, int, bytes]  # replace the bytes [start, end) of the line


@dataclass(slots=True, eq=False)
class _Slot:
    """A member's turn in the object: bytes [start, end) of the line, or new text."""

    key: bytes
    separator: bytes | None  # the text before it when it is not the first; None: a comma
    start: int = -1
    end: int = -1
    text: bytes | None = None


class Members:
    """The members of the object at `path`, as they shall become.

    Only of an object that was searched for as a listed one can members be taken out or put back;
    the line's own object takes new ones without that.
    """

    def __init__(self, raw: bytes, found: ScanResult, path: ValuePath) -> None:
        self._raw = raw
        self._found = found
        self._path = path
        self._added: list[bytes] = []
        self._margins: tuple[bytes, bytes] | None = None  # of the original line, if they come back
        self._turns: list[_Slot] | None = None  # made when a member goes or comes back

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
        """Take a member out that stands once in the object."""
        self._turns = [slot for slot in self._slots if slot.key != key]

    def append(self, text: bytes) -> None:
        """Add a member after all others; `text` is its key, colon and value."""
        self._added.append(text)

    def reinsert(self, key: bytes, original: bytes, there: ScanResult) -> None:
        """Put a member back where it stood in this object in the original line.

        That is after the nearest of its old predecessors that is still there, else before the
        nearest of its old successors, else before everything.
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
        """Yield the changes between the members that stay; their own bytes are never touched."""
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
        if not self._slots:  # as if the members had left first, and the others come then
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
    """The white space before the first member and after the last one."""
    start, end = found.span(path)
    members = found.members_of(path)
    if not members:
        return raw[start + 1 : end - 1], b""
    return raw[start + 1 : members[0][1]], raw[members[-1][2] : end - 1]


def _separated(raw: bytes, members: list[Member]) -> Iterator[tuple[Member, bytes | None]]:
    """Each member with the bytes between it and the one before it."""
    done = -1
    for member in members:
        yield member, (raw[done : member[1]] if done >= 0 else None)
        done = member[2]


def _names(keys: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """Keys told apart by occurrence: objects may hold duplicate keys that no edit names."""
    seen: Counter[bytes] = Counter()
    names = []
    for key in keys:
        names.append((key, seen[key]))
        seen[key] += 1
    return names

"""Where the values of some paths stand in a raw JSON line, found in one pass over its bytes.

Only objects and arrays on a searched path are read closely; everything else is skipped at the
speed of `bytes.find`, without recursion. The line must be one that `parse_entry` accepts: what is
skipped is not checked, what is read and is not JSON raises BrokenLine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from bsd.foundation.errors import Conflict
from bsd.foundation.value_path import ValuePath, format_path


class SpliceError(Conflict):
    """A line cannot be edited without risk to its other bytes, so it is left alone."""


class BrokenLine(SpliceError):
    """The line is not exactly one JSON object."""


class TooDeep(SpliceError):
    """A path has more steps than can be followed."""


class DuplicateKey(SpliceError):
    """A key on the path stands twice in its object: which one counts is not ours to say."""


class NoSuchValue(SpliceError):
    """The line has no value at the path."""


_SPACE = rb"[ \t\r\n]*+"
# Possessive or atomic throughout: no backtracking, so neither time nor memory grows beyond the
# match. A possessive repetition of a group, `(?:…)*+`, takes a byte too many before CPython 3.11.5.
_KEY = rb'"((?>[^"\\]*+(?:\\.[^"\\]*+)*))"' + _SPACE + rb":" + _SPACE
# A step in Python costs what the regular expression needs for some 40 bytes; `bytes.find` is
# far faster than both. So expressions take short strings along and leave long ones alone.
_SCALAR = rb"[-+.0-9A-Za-z]++"
_MEMBER = _KEY + rb"(" + _SCALAR + rb'|"[^"\\]{0,40}+")?'
_FIRST_MEMBER = re.compile(rb"\{" + _SPACE + rb"(?:" + _MEMBER + rb"|\})", re.DOTALL)
_NEXT_MEMBER = re.compile(_SPACE + rb"(?:," + _SPACE + _MEMBER + rb"|\})", re.DOTALL)
_FIRST_ELEMENT = re.compile(rb"\[" + _SPACE + rb"(\])?")
_NEXT_ELEMENT = re.compile(_SPACE + rb"(?:," + _SPACE + rb"|(\]))")
_SCALAR_ALONE = re.compile(_SCALAR)
_FLAT = rb'(?>[^"{}\[\]]*+(?:"[^"\\]{0,40}+"[^"{}\[\]]*+)*)'
_NEARLY_FLAT = re.compile(rb"(?>" + _FLAT + rb"(?:[{\[]" + _FLAT + rb"[}\]]" + _FLAT + rb")*)")

_QUOTE, _BACKSLASH = b'"\\'
_OPENING = b"{["
_SMALL_PIECE, _LARGE_PIECE = 1 << 9, 1 << 15  # bytes; even, so that pairs of backslashes fit

# A key, decoded and encoded again as UTF-8; where its quote stands; where its value ends.
Member = tuple[bytes, int, int]


@dataclass(slots=True, eq=False)
class Place:
    """What `scan` looks for at one path, and where it found it; `start` is -1 if it did not."""

    path: ValuePath
    children: dict[bytes | int, Place] = field(default_factory=dict)
    start: int = -1
    end: int = -1
    members: list[Member] | None = None  # if it is an object on the way to a searched path

    @classmethod
    def tree(cls, paths: Iterable[ValuePath]) -> Place:
        """The root of all searched places; `scan` fills them in."""
        root = cls(())
        for path in paths:
            place = root
            for depth, step in enumerate(path, 1):
                key = step if isinstance(step, int) else encode_key(step)
                child = place.children.get(key)
                if child is None:
                    child = place.children[key] = cls(path[:depth])
                place = child
        return root

    def at(self, path: ValuePath) -> Place:
        """The place of a path that this tree was made with; found or not."""
        place = self
        for step in path:
            place = place.children[step if isinstance(step, int) else encode_key(step)]
        return place

    def found(self, path: ValuePath) -> Place:
        """The place of a path; raises NoSuchValue if the line has no value there."""
        place = self.at(path)
        if place.start < 0:
            raise NoSuchValue(f"the line has no value {format_path(path)}")
        return place


def encode_key(key: str) -> bytes:
    """A key in the form in which keys are compared here."""
    return key.encode("utf-8", "surrogatepass")


def scan(raw: bytes, root: Place) -> None:
    """Find all places of the tree `root` in a line; raises BrokenLine, DuplicateKey, TooDeep."""
    start = len(raw) - len(raw.lstrip(b" \t\r\n"))
    if not raw.startswith(b"{", start):
        raise _broken(start)
    try:
        end = _object(raw, start, root)
    except RecursionError:
        raise TooDeep("a path into the line is too long to be followed") from None
    if raw[end:].strip(b" \t\r\n"):
        raise _broken(end)
    root.start, root.end = start, end


def _value(raw: bytes, at: int, place: Place) -> int:
    """Find what is wanted in the value at `at`; returns where it ends."""
    if not place.children:
        end = _skip(raw, at)
    elif raw.startswith(b"{", at):
        end = _object(raw, at, place)
    elif raw.startswith(b"[", at):
        end = _array(raw, at, place)
    else:
        end = _skip(raw, at)
    place.start, place.end = at, end
    return end


def _object(raw: bytes, at: int, place: Place) -> int:
    members = place.members = []
    children = place.children
    match = _FIRST_MEMBER.match(raw, at)
    while match is not None:
        key, simple = match.groups()
        if key is None:
            return match.end()
        if b"\\" in key:
            key = _decoded(key, at)
        child = children.get(key)
        if child is not None:
            if child.start >= 0:
                raise DuplicateKey(f"the key {format_path(child.path)} stands twice in the line")
            at = _value(raw, match.end() if simple is None else match.start(2), child)
        elif simple is None:
            at = _skip(raw, match.end())
        else:
            at = match.end()
        members.append((key, match.start(1) - 1, at))
        match = _NEXT_MEMBER.match(raw, at)
    raise _broken(at)


def _array(raw: bytes, at: int, place: Place) -> int:
    match = _FIRST_ELEMENT.match(raw, at)
    last_wanted = max((step for step in place.children if isinstance(step, int)), default=-1)
    for index in count():
        if match is None:
            break
        at = match.end()
        if match[1]:
            return at
        if index > last_wanted:
            return _nested_end(raw, at, depth=1)
        child = place.children.get(index)
        at = _skip(raw, at) if child is None else _value(raw, at, child)
        match = _NEXT_ELEMENT.match(raw, at)
    raise _broken(at)


def _decoded(key: bytes, at: int) -> bytes:
    text = key.decode("utf-8", "surrogateescape")  # bytes that are no UTF-8 match no searched key
    try:
        return encode_key(json.loads(f'"{text}"'))
    except ValueError:
        raise _broken(at) from None


def _skip(raw: bytes, at: int) -> int:
    """Where the value that starts at `at` ends."""
    first = raw[at : at + 1]
    if first == b'"':
        return _string_end(raw, at)
    if first and first in _OPENING:
        return _nested_end(raw, at + 1, depth=1)
    match = _SCALAR_ALONE.match(raw, at)
    if match is None:
        raise _broken(at)
    return match.end()


def _nested_end(raw: bytes, at: int, depth: int) -> int:
    """Where the object or array ends that is open `depth` levels deep at `at`."""
    length = len(raw)
    while True:
        match = _NEARLY_FLAT.match(raw, at)
        at = match.end() if match else at
        if at >= length:
            raise _broken(at)
        byte = raw[at]
        if byte == _QUOTE:
            at = _string_end(raw, at)
            continue
        at += 1
        if byte in _OPENING:
            depth += 1
        else:
            depth -= 1
            if not depth:
                return at


def _string_end(raw: bytes, at: int) -> int:
    """Where the string ends whose opening quote is at `at`."""
    end = raw.find(b'"', at + 1)
    if end < 0:
        raise _broken(at)
    return end + 1 if raw[end - 1] != _BACKSLASH else _escaped_string_end(raw, at)


def _escaped_string_end(raw: bytes, at: int) -> int:
    r"""The same for a string with \" or \\" in it, which `find` alone cannot tell apart.

    Escapes are blanked out piece by piece: three times as fast as any regular expression.
    """
    opening, at, size = at, at + 1, _SMALL_PIECE
    while True:
        piece = raw[at : at + size]
        if piece.endswith(b"\\"):  # never cut an escape in two; nothing but backslashes is pairs
            piece = piece.rstrip(b"\\") or piece
        if not piece:
            raise _broken(opening)
        quote = piece.replace(b"\\\\", b"--").replace(b'\\"', b"--").find(b'"')
        if quote >= 0:
            return at + quote + 1
        at += len(piece)
        size = min(size * 4, _LARGE_PIECE)


def _broken(at: int) -> BrokenLine:
    return BrokenLine(f"the line is not one JSON object (byte {at})")

"""Paths of values in an entry, and their places in its raw JSON line, found in one pass.

Paths are written `output`, `message.content[2].text`, `details["a.b"]`. Only objects and arrays on
a searched path are parsed closely; the rest is skipped at the speed of `bytes.find`, without
recursion. `parse_entry` must accept the line: skipped parts are not checked, and a parsed part that
is not JSON raises SpliceError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

from bsd.core.errors import Conflict

# --- paths ---

ValuePath = tuple[str | int, ...]

_ABSENT = object()

# Lone surrogates are quoted too, since escapes can be written in any encoding.
_PLAIN = re.compile(r"[^\s.\[\]\"\ud800-\udfff]+")
_STEP = re.compile(r'\[([0-9]+)\]|\[("(?:[^"\\]|\\.)*")\]|(\.?)([^\s.\[\]"]+)')


def format_path(path: ValuePath) -> str:
    """Return a path as text; keys that could be misread are quoted in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def parse_path(text: str) -> ValuePath:
    """Return the path that `format_path` wrote; raises ValueError."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if not match or (match[4] is not None and bool(match[3]) != bool(steps)):
            raise _no_path(text)
        steps.append(_step(match, text))
        position = match.end()
    if not steps:
        raise ValueError("an empty path names no value")
    return tuple(steps)


def names_value(name: str, path: ValuePath) -> bool:
    """Return whether a name denotes a value: by its path, a segment of it, or an indexed segment.

    For example, `message.content[2].text` is denoted by itself, `content`, `text`, and
    `content[2]`.
    """
    numbered = (f"{one}[{two}]" for one, two in pairwise(path) if isinstance(two, int))
    return name == format_path(path) or name in path or name in numbered


def _step(match: re.Match[str], text: str) -> str | int:
    index, quoted, _, plain = match.groups()
    try:
        if index is not None:
            return int(index)
        return plain if quoted is None else str(json.loads(quoted))
    except ValueError:  # an escape that JSON does not allow, or a number with too many digits
        raise _no_path(text) from None


def _no_path(text: str) -> ValueError:
    return ValueError(f"not the path of a value: {text!r}")


def paths_of(keys: Iterable[str]) -> dict[str, ValuePath]:
    """Map the keys of a marker to their paths; invalid keys are left out."""
    paths = {}
    for key in keys:
        try:
            paths[key] = parse_path(key)
        except ValueError:  # the marker was edited by hand, so no value has this path
            continue
    return paths


def value_at(entry: Any, path: ValuePath) -> Any:
    """Return the value at a path, or a private sentinel if there is none (see `is_present`)."""
    value: Any = entry
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _ABSENT
    return value


def is_present(entry: Any, path: ValuePath) -> bool:
    """Return whether there is a value at a path; `null` is a value."""
    return value_at(entry, path) is not _ABSENT


# --- places of values in a line ---


class SpliceError(Conflict):
    """A line cannot be edited without risk to its other bytes, so it stays as it is."""


class NoSuchValue(SpliceError):
    """The line has no value at the path."""


_SPACE = rb"[ \t\r\n]*+"
# All repetitions are possessive or atomic: without backtracking, time and memory do not grow beyond
# the match. A possessive repetition of a group, `(?:…)*+`, consumes a byte too many before CPython
# 3.11.5.
_KEY = rb'"((?>[^"\\]*+(?:\\.[^"\\]*+)*))"' + _SPACE + rb":" + _SPACE
# A step in Python costs as much as some 40 bytes in a regular expression, and `bytes.find` is far
# faster than both. Therefore expressions consume short strings and stop at long ones.
_SCALAR = rb"[-+.0-9A-Za-z]++"
_SHORT_STRING = rb'"[^"\\]{0,40}+"'
_MEMBER = _KEY + rb"(" + _SCALAR + rb"|" + _SHORT_STRING + rb")?"
_FLAT = rb'(?>[^"{}\[\]]*+(?:' + _SHORT_STRING + rb'[^"{}\[\]]*+)*)'
_NEARLY_FLAT = rb"(?>" + _FLAT + rb"(?:[{\[]" + _FLAT + rb"[}\]]" + _FLAT + rb")*)"

# Most members are short and not searched for, so a run of them is consumed in one step, but only in
# the usual form `"key":value`. A searched key in a run then shows as the bytes `"key":`. No other
# text can, since strings in a run contain no quote and no backslash.
_SHORT = (
    rb'"[^"\\]{0,40}+":(?>' + _SCALAR + rb"|" + _SHORT_STRING + rb"|[{\[]" + _NEARLY_FLAT
    + rb"[}\]])"
)  # fmt: skip
_MORE = rb"(?>(?:" + _SPACE + rb"," + _SPACE + _SHORT + rb"){0,64})"


def _members(first_run: bytes, run: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the expressions for an object's first members, and for those after a value.

    Groups: the run that is skipped, then a key and its value if the value is simple. At the end of
    the object, key and value are missing.
    """
    first = rb"\{" + _SPACE + first_run + rb"(?:(?(1)" + _SPACE + rb"," + _SPACE + rb")"
    following = run + _SPACE + rb"(?:," + _SPACE
    end = _MEMBER + rb"|" + _SPACE + rb"\})"
    return re.compile(first + end, re.DOTALL), re.compile(following + end, re.DOTALL)


_IN_RUNS = _members(rb"(?>(" + _SHORT + _MORE + rb")?)", rb"(" + _MORE + rb")")
_ONE_BY_ONE = _members(rb"((?!))?", rb"()")
_FIRST_ELEMENT = re.compile(rb"\[" + _SPACE + rb"(\])?")
_NEXT_ELEMENT = re.compile(_SPACE + rb"(?:," + _SPACE + rb"|(\]))")
_SCALAR_ALONE = re.compile(_SCALAR)
_PASSED_OVER = re.compile(_NEARLY_FLAT)

_QUOTE, _BACKSLASH = b'"\\'
_OPENING = b"{["
_MAYBE_END = re.compile(rb'"[,}\]: \t\r\n]')  # end of a string, and the character after it
_GUESSES = 8
_SMALL_PIECE, _LARGE_PIECE = 1 << 9, 1 << 15  # bytes; even, so that pairs of backslashes fit

# A key (decoded, as UTF-8); the offset of its quote; the offset of the end of its value.
Member = tuple[bytes, int, int]


@dataclass(slots=True, eq=False)
class Wanted:
    """A searched value, or a step on the path to one."""

    path: ValuePath
    slot: int  # index in the lists of `ScanResult`
    listed: bool  # its members are recorded
    children: dict[bytes | int, Wanted] = field(default_factory=dict)
    tokens: tuple[bytes, ...] = ()  # the keys of its children as they appear in a run
    last_index: int = -1  # largest index of its children


class Search:
    """A set of paths to find in a line; one object serves all lines with the same paths."""

    def __init__(self, paths: Iterable[ValuePath], listed: Iterable[ValuePath] = ()) -> None:
        """Search for `paths`, and record the members of the objects at `listed`."""
        self._by_path: dict[ValuePath, Wanted] = {}
        listed = frozenset(listed)
        self.root = self._add((), listed)
        for path in (*paths, *listed):
            for depth, step in enumerate(path):
                parent = self._by_path[path[:depth]]
                key = step if isinstance(step, int) else encode_key(step)
                if key not in parent.children:
                    parent.children[key] = self._add(path[: depth + 1], listed)
        for wanted in self._by_path.values():
            steps = wanted.children
            wanted.tokens = tuple(b'"%b":' % step for step in steps if isinstance(step, bytes))
            wanted.last_index = max((step for step in steps if isinstance(step, int)), default=-1)

    @classmethod
    @lru_cache(maxsize=128)
    def of(cls, paths: tuple[ValuePath, ...], listed: frozenset[ValuePath] = frozenset()) -> Search:
        """Return a cached object, since many lines have the same paths."""
        return cls(paths, listed)

    def _add(self, path: ValuePath, listed: frozenset[ValuePath]) -> Wanted:
        wanted = self._by_path[path] = Wanted(path, len(self._by_path), path in listed)
        return wanted

    def __len__(self) -> int:
        return len(self._by_path)

    def __getitem__(self, path: ValuePath) -> Wanted:
        return self._by_path[path]


class ScanResult:
    """The places of the searched paths in a line."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.spans: list[tuple[int, int] | None] = [None] * len(search)
        self.before = [-1] * len(search)  # by slot: end of the member before it, or -1
        self.members: dict[int, list[Member]] = {}  # by slot: members of the listed objects
        self.last_end = -1  # end of the last member of the line's object, or -1

    def has(self, path: ValuePath) -> bool:
        """Return whether the line has a value at a searched path."""
        return self.spans[self._search[path].slot] is not None

    def span(self, path: ValuePath) -> tuple[int, int]:
        """Return the place of a value; raises NoSuchValue."""
        span = self.spans[self._search[path].slot]
        if span is None:
            raise NoSuchValue(f"the line has no value {format_path(path)}")
        return span

    def end_before(self, path: ValuePath) -> int:
        """Return the end of the member before this member in its object; -1 for the first."""
        return self.before[self._search[path].slot]

    def members_of(self, path: ValuePath) -> list[Member]:
        """Return the members of a listed object; raises SpliceError if there is no such object."""
        slot = self._search[path].slot
        if self.spans[slot] is None:
            raise NoSuchValue("the line has no object where a member is to be edited")
        if slot not in self.members:
            raise SpliceError("only members of objects can be taken out or put back")
        return self.members[slot]


def encode_key(key: str) -> bytes:
    """Return a key in the form in which this module compares keys."""
    return key.encode("utf-8", "surrogatepass")


def scan(raw: bytes, search: Search) -> ScanResult:
    """Find the paths of `search` in a line; raises SpliceError."""
    start = len(raw) - len(raw.lstrip(b" \t\r\n"))
    if not raw.startswith(b"{", start):
        raise _broken(start)
    found = ScanResult(search)
    try:
        end = _object(raw, start, search.root, found)
    except RecursionError:
        raise SpliceError("a path into the line is too long") from None
    if raw[end:].strip(b" \t\r\n"):
        raise _broken(end)
    found.spans[search.root.slot] = start, end
    return found


def _value(raw: bytes, at: int, wanted: Wanted, found: ScanResult) -> int:
    """Find the wanted paths in the value at `at`; return the end of the value."""
    opening = raw[at : at + 1] if wanted.children or wanted.listed else b""
    if opening == b"{":
        end = _object(raw, at, wanted, found)
    elif opening == b"[":
        end = _array(raw, at, wanted, found)
    else:
        end = _skip(raw, at)
    found.spans[wanted.slot] = at, end
    return end


def _object(raw: bytes, at: int, wanted: Wanted, found: ScanResult) -> int:
    members: list[Member] | None = None
    if wanted.listed:
        members = found.members[wanted.slot] = []
    expressions = _ONE_BY_ONE if wanted.listed else _IN_RUNS
    children, tokens = wanted.children, wanted.tokens
    last_end, turn = -1, 0
    while match := expressions[turn].match(raw, at):
        run, key, simple = match.groups()
        if run:
            if _stands_in(run, tokens):
                expressions = _ONE_BY_ONE
                continue
            last_end = match.end(1)
        if key is None:
            found.last_end = last_end  # the line's own object ends last
            return match.end()
        if _BACKSLASH in key:
            key = _decoded(key, at)
        if child := children.get(key):
            if found.spans[child.slot]:
                raise SpliceError(f"the key {format_path(child.path)} occurs twice in the line")
            found.before[child.slot] = last_end
            at = _value(raw, match.end() if simple is None else match.start(3), child, found)
        else:
            at = match.end() if simple else _skip(raw, match.end())
        if members is not None:
            members.append((key, match.start(2) - 1, at))
        last_end, turn = at, 1
    raise _broken(at)


def _stands_in(run: bytes, tokens: tuple[bytes, ...]) -> bool:
    # `any` takes three times as long for a few tokens. `in` first tries to read bytes as a number,
    # which costs an exception.
    for token in tokens:  # noqa: SIM110
        if run.find(token) >= 0:
            return True
    return False


def _array(raw: bytes, at: int, wanted: Wanted, found: ScanResult) -> int:
    match = _FIRST_ELEMENT.match(raw, at)
    for index in count():
        if match is None:
            break
        at = match.end()
        if match[1]:
            return at
        if index > wanted.last_index:
            return _nested_end(raw, at)
        child = wanted.children.get(index)
        at = _skip(raw, at) if child is None else _value(raw, at, child, found)
        match = _NEXT_ELEMENT.match(raw, at)
    raise _broken(at)


def _decoded(key: bytes, at: int) -> bytes:
    text = key.decode("utf-8", "surrogateescape")  # invalid UTF-8 matches no searched key
    try:
        return encode_key(json.loads(f'"{text}"'))
    except ValueError:
        raise _broken(at) from None


def _skip(raw: bytes, at: int) -> int:
    """Return the end of the value that starts at `at`."""
    if at < len(raw):
        first = raw[at]
        if first == _QUOTE:
            return _string_end(raw, at)
        if first in _OPENING:
            return _nested_end(raw, at + 1)
    match = _SCALAR_ALONE.match(raw, at)
    if match is None:
        raise _broken(at)
    return match.end()


def _nested_end(raw: bytes, at: int) -> int:
    """Return the end of the object or array that contains `at`."""
    length, depth = len(raw), 1
    while True:
        match = _PASSED_OVER.match(raw, at)
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
    """Return the end of the string whose opening quote is at `at`."""
    end = raw.find(b'"', at + 1)
    if end < 0:
        raise _broken(at)
    return end + 1 if raw[end - 1] != _BACKSLASH else _escaped_string_end(raw, at)


def _escaped_string_end(raw: bytes, at: int) -> int:
    r"""Return the end of a string with \" or \\" in it, which `find` alone cannot distinguish.

    A quote before a comma or a bracket is nearly always the end. Strings that contain JSON have
    many other such quotes; after some guesses they are handled by `_blanked_string_end`.
    """
    opening, at = at, at + 1
    for _ in range(_GUESSES):
        match = _MAYBE_END.search(raw, at)
        if match is None:
            raise _broken(opening)
        quote = escapes = match.start()
        while raw[escapes - 1] == _BACKSLASH:
            escapes -= 1
        at = quote + 1
        if (quote - escapes) % 2 == 0:
            return at
    return _blanked_string_end(raw, opening, at)


def _blanked_string_end(raw: bytes, opening: int, at: int) -> int:
    """Return the end of a string, from `at`, which must not lie inside an escape.

    Escapes are blanked out piece by piece: three times as fast as any regular expression.
    """
    size = _SMALL_PIECE
    while True:
        piece = raw[at : at + size]
        if piece.endswith(b"\\"):  # keep escapes whole; backslashes alone are pairs
            piece = piece.rstrip(b"\\") or piece
        if not piece:
            raise _broken(opening)
        quote = piece.replace(b"\\\\", b"--").replace(b'\\"', b"--").find(b'"')
        if quote >= 0:
            return at + quote + 1
        at += len(piece)
        size = min(size * 4, _LARGE_PIECE)


def _broken(at: int) -> SpliceError:
    return SpliceError(f"the line is not one JSON object (byte {at})")

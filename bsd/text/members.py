"""The members of one object under edit: taken out, put back at their old place, added at the end.

Of a member that goes, its separator goes too: the comma and white space *before* it, or, if it is
the first, those before its successor. So what is left depends only on which members are left, and
every member can be put back exactly, in any order, from the original line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bsd.foundation.value_path import ValuePath
from bsd.text.spans import Member, ScanResult

Patch = tuple[int, int, bytes]  # replace the bytes [start, end) of the line


@dataclass(slots=True, eq=False)
class _Slot:
    """A member's turn in the object: bytes [start, end) of the line, or new text."""

    key: bytes
    separator: bytes | None  # what stands before it when it is not the first; None: a comma
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
        """What changes between the members that stay; their own bytes are never touched."""
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
    """Keys told apart by occurrence: objects may hold duplicate keys that nobody edits."""
    seen: Counter[bytes] = Counter()
    names = []
    for key in keys:
        names.append((key, seen[key]))
        seen[key] += 1
    return names

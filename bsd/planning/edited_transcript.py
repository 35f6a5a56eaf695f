"""A session as several plans will leave it, before any of them takes effect.

In `plan.Revised`, which merges several plans into one, lines keep their present places. Here they
have their future places, so that lines can be added and removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Line, Transcript


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Whole lines that start at byte `start` of the edited session.

    `content` is their bytes, or their offset in the session file.
    """

    start: int
    length: int
    content: bytes | int

    def cut(self, start: int, end: int, to: int) -> _Stretch:
        """Return the part `[start, end)` of the edited session, moved so that it starts at `to`."""
        first, last = start - self.start, end - self.start
        if isinstance(self.content, bytes):
            return _Stretch(to, last - first, self.content[first:last])
        return _Stretch(to, last - first, self.content + first)


class EditedTranscript:
    """The lines of a session after edits. The session file itself stays open and unchanged."""

    def __init__(self, source: Transcript) -> None:
        self.identity, self.size = source.identity, source.size
        self._source = source
        self._pieces = [_Stretch(0, source.size, 0)]

    def after(self, edits: Sequence[Edit]) -> EditedTranscript:
        """Return the session after these edits, which were planned on this state of it."""
        pieces: list[_Stretch] = []
        end = read = 0  # offsets: in the new session, in this one
        for edit in edits:
            for piece in self._between(read, edit.offset, end):
                pieces.append(piece)
                end += piece.length
            if edit.new:
                pieces.append(_Stretch(end, len(edit.new), edit.new))
                end += len(edit.new)
            read = edit.offset + edit.length
        for piece in self._between(read, self.size, end):
            pieces.append(piece)
            end += piece.length
        edited = EditedTranscript(self._source)
        edited.identity, edited.size = replace(self.identity, size=end), end
        edited._pieces = pieces
        return edited

    def _between(self, start: int, end: int, to: int) -> Iterator[_Stretch]:
        """Yield the pieces from `start` to `end`, moved so that the first begins at `to`."""
        moved = to - start
        for piece in self._pieces[self._piece_at(start) :]:
            first, last = max(start, piece.start), min(end, piece.start + piece.length)
            if piece.start >= end:
                return
            if first < last:
                yield piece.cut(first, last, first + moved)

    def _piece_at(self, offset: int) -> int:
        return max(0, bisect_right(self._pieces, offset, key=lambda piece: piece.start) - 1)

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """Yield the lines from byte `start` on, like `Transcript.lines`."""
        index = first_index
        for piece in self._between(start, self.size, start):
            for line in self._lines_of(piece):
                yield replace(line, index=index)
                index += 1

    def _lines_of(self, piece: _Stretch) -> Iterator[Line]:
        if isinstance(piece.content, bytes):
            offset = piece.start
            for raw in _split(piece.content):
                yield Line(0, offset, raw)
                offset += len(raw)
            return
        for line in self._source.lines(piece.content):
            if line.offset >= piece.content + piece.length:
                return
            yield replace(line, offset=piece.start + line.offset - piece.content)

    def lines_holding(self, needle: bytes) -> Iterator[Line]:
        """Yield the lines that contain these bytes."""
        return (line for line in self.lines() if needle in line.raw)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`."""
        found = []
        for piece in self._between(offset, offset + length, 0):
            if isinstance(piece.content, bytes):
                found.append(piece.content)
            else:
                found.append(self._source.read(piece.content, piece.length))
        return b"".join(found)


def _split(content: bytes) -> list[bytes]:
    """Split at line feeds only. The last line may lack its line feed."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]

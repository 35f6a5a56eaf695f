"""Finding the text most like a marker that is nowhere, within bounds that suit any session."""

from __future__ import annotations

from difflib import SequenceMatcher

_CONTEXT = 20  # characters beside what is quoted
_LONGEST_QUOTE = 60
_LONGEST_COMPARED = 120  # of a marker, in characters: its beginning tells enough
_PIECES = 8
_MOST_COMPARED = 3000
_MOST_SEARCHED = 64 << 20  # characters
_ALIKE = 0.6


def quoted(text: str) -> str:
    """A marker as errors show it."""
    shown = text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
    return f'"{_one_line(shown)}"'


def excerpt(text: str, start: int, end: int) -> str:
    """Where in a text something stands, with a little of what is around it."""
    if end - start > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        middle = f"{text[start : start + half]} … {text[end - half : end]}"
    else:
        middle = text[start:end]
    before, after = text[max(0, start - _CONTEXT) : start], text[end : end + _CONTEXT]
    left = "…" if start > _CONTEXT else ""
    right = "…" if end + _CONTEXT < len(text) else ""
    return f'"{_one_line(left + before + middle + after + right)}"'


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


class Similar:
    """Looks through one text after the other for the one most like a marker."""

    def __init__(self, marker: str) -> None:
        self._wanted = marker[:_LONGEST_COMPARED].casefold()
        self._matcher = SequenceMatcher(None, autojunk=False)
        self._matcher.set_seq2(self._wanted)
        self._pieces = _pieces(self._wanted)
        self._ratio = _ALIKE
        self._found: tuple[str, str] | None = None
        self._compared = self._searched = 0

    def look(self, name: str, text: str) -> None:
        """Compare one text of the entry `name`."""
        self._searched += len(text)
        if self._searched > _MOST_SEARCHED or not self._pieces:
            return
        lowered = text.casefold()
        windows: set[int] = set()
        for offset, piece in self._pieces:
            at = lowered.find(piece)
            while at >= 0 and self._compared < _MOST_COMPARED:
                # Pieces of one place point to nearly the same window: one look is enough.
                start = max(0, at - offset)
                if windows.isdisjoint(range(start - 2, start + 3)):
                    windows.add(start)
                    self._compare(name, text, lowered, start)
                at = lowered.find(piece, at + len(piece))

    def best(self) -> tuple[str, str] | None:
        """Entry and excerpt of the most similar text; None if nothing is like it."""
        return self._found

    def _compare(self, name: str, text: str, lowered: str, start: int) -> None:
        end = start + len(self._wanted)
        self._compared += 1
        self._matcher.set_seq1(lowered[start:end])
        if self._matcher.quick_ratio() > self._ratio and self._matcher.ratio() > self._ratio:
            self._ratio = self._matcher.ratio()
            self._found = name, excerpt(text, start, min(end, len(text)))


def _pieces(wanted: str) -> list[tuple[int, str]]:
    """Pieces of a marker, spread over it, and where in it they stand: one may be misspelt."""
    length = max(3, min(12, len(wanted) // 3))
    if len(wanted) < length:
        return []
    steps = max(1, (len(wanted) - length) // _PIECES)
    found = [(at, wanted[at : at + length]) for at in range(0, len(wanted) - length + 1, steps)]
    return [(at, piece) for at, piece in found if piece.strip()]

r"""Regular expressions that users give us, matched in a time that nothing drives up.

Python's matcher tries one way after another, and `(a+)+$` has 2ⁿ of them. This one goes all ways at
once: each part of an expression takes the set of places reached so far to the next. It knows what
names are matched by: characters, classes, groups, `|`, `* + ? {m,n}`, `^ $ \b`, and what must or
must not follow. Not: references back, what came before, flags; case never counts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from collections.abc import Set as AbstractSet

LONGEST_TEXT = 128  # characters that are looked at; names of models are shorter
_LONGEST, _DEEPEST = 500, 3  # characters; repetitions of repetitions
_MOST = 1000  # of `{m,n}`

Places = AbstractSet[int]
Step = Callable[[str, Places], Places]
_Fits = Callable[[str], bool]

_CLASSES: dict[str, _Fits] = {
    "d": str.isdecimal,
    "w": lambda one: one.isalnum() or one == "_",
    "s": str.isspace,
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_COUNT = re.compile(r"\{(\d{0,6})(?:(,)(\d{0,6}))?\}")


class Pattern:
    """One expression; raises ValueError for one that is wrong, or of another kind."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} characters")
        self._step = _Reader(text.removeprefix("(?i)")).whole()

    def search(self, text: str) -> bool:
        """Whether some part of the text, of which the beginning is looked at, is of this form."""
        text = text[:LONGEST_TEXT]
        return bool(self._step(text, set(range(len(text) + 1))))


def check_pattern(text: str) -> None:
    """Raise ValueError for what is no regular expression, or none that is used here."""
    try:
        with warnings.catch_warnings():
            # What a later Python will read in another way: this one is what it is read by now.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        raise ValueError(f"{text!r} is not a regular expression: {problem}") from None
    try:
        Pattern(text)
    except ValueError as problem:
        raise ValueError(f"{text!r} is not a regular expression that bsd uses: {problem}") from None


class _Reader:
    """Reads an expression from its first character to its last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0  # of repetitions in what was read last

    def whole(self) -> Step:
        step = self._either()
        if self._at < len(self._text):
            raise ValueError(f"unbalanced parenthesis at position {self._at}")
        return step

    def _either(self) -> Step:
        ways, depth = [self._sequence()], self._depth
        while self._takes("|"):
            ways.append(self._sequence())
            depth = max(depth, self._depth)
        self._depth = depth
        return ways[0] if len(ways) == 1 else _any_of(ways)

    def _sequence(self) -> Step:
        steps, depth = [], 0
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            self._depth = 0
            steps.append(self._repeated(self._one()))
            depth = max(depth, self._depth)
        self._depth = depth
        return _in_turn(steps)

    def _one(self) -> Step:
        one = self._text[self._at]
        self._at += 1
        match one:
            case "(":
                return self._group()
            case "[":
                return _character(self._members())
            case ".":
                return _character(lambda found: found != "\n")
            case "^":
                return _where(lambda _, at: at == 0)
            case "$":
                return _where(lambda text, at: at == len(text) or text[at:] == "\n")
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise ValueError(f"nothing to repeat at position {self._at - 1}")
        return _character(_same(one))

    def _group(self) -> Step:
        ahead = must = False
        if self._takes("?"):
            ahead = self._text[self._at : self._at + 1] in {"=", "!"}
            must = self._takes("=")
            if not (must or self._takes("!") or self._takes(":")):
                raise ValueError("groups are (…), (?:…), (?=…) and (?!…) here")
        inner = self._either()
        if not self._takes(")"):
            raise ValueError("missing )")
        if not ahead:
            return inner
        return _where(lambda text, at: bool(inner(text, {at})) == must)

    def _escaped(self) -> Step:
        name = self._text[self._at : self._at + 1]
        if name in {"b", "B"}:
            self._at += 1
            return _where(lambda text, at: _is_edge(text, at) == (name == "b"))
        return _character(self._escape())

    def _escape(self) -> _Fits:
        """What stands behind a backslash, in a class or outside of one."""
        name = self._text[self._at : self._at + 1]
        self._at += 1
        if name.lower() in _CLASSES:
            fits = _CLASSES[name.lower()]
            return fits if name.islower() else lambda found: not fits(found)
        if name in _CONTROLS:
            return _same(_CONTROLS[name])
        if not name or name.isalnum():
            raise ValueError(f"\\{name} is not known here")
        return _same(name)

    def _members(self) -> _Fits:
        refused = self._takes("^")
        fits: list[_Fits] = []
        while not fits or self._text[self._at : self._at + 1] != "]":
            fits.append(self._member())
        self._at += 1
        return lambda found: any(each(found) for each in fits) != refused

    def _member(self) -> _Fits:
        first = self._text[self._at : self._at + 1]
        if not first:
            raise ValueError("missing ]")
        self._at += 1
        if first == "\\":
            return self._escape()
        last = self._text[self._at + 1 : self._at + 2]
        if self._text[self._at : self._at + 1] != "-" or last in {"]", "\\", ""}:
            return _same(first)
        self._at += 2
        if last < first:
            raise ValueError(f"bad character range {first}-{last}")
        return lambda found: any(first <= one <= last for one in (found.lower(), found.upper()))

    def _repeated(self, step: Step) -> Step:
        least, most = self._count()
        if (least, most) == (1, 1):
            return step
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"repetitions stand in each other more than {_DEEPEST} deep")
        self._takes("?")  # the shortest one: which is found makes no difference
        if self._text[self._at : self._at + 1] in {"*", "+"}:
            raise ValueError(f"multiple repeat at position {self._at}")
        return _repeat(step, least, most)

    def _count(self) -> tuple[int, int | None]:
        for sign, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(sign):
                return count
        found = _COUNT.match(self._text, self._at)
        if found is None or found[0] == "{}":
            return 1, 1
        self._at = found.end()
        least = int(found[1] or 0)
        most = (int(found[3]) if found[3] else None) if found[2] else least
        if max(least, most or 0) > _MOST or (most is not None and most < least):
            raise ValueError(f"{found[0]} is no number of repetitions up to {_MOST}")
        return least, most

    def _takes(self, sign: str) -> bool:
        if self._text[self._at : self._at + 1] != sign:
            return False
        self._at += 1
        return True


def _same(wanted: str) -> _Fits:
    low = wanted.lower()
    return lambda found: found.lower() == low


def _is_edge(text: str, at: int) -> bool:
    word = _CLASSES["w"]
    return (at > 0 and word(text[at - 1])) != (at < len(text) and word(text[at]))


def _character(fits: _Fits) -> Step:
    return lambda text, places: {at + 1 for at in places if at < len(text) and fits(text[at])}


def _where(holds: Callable[[str, int], bool]) -> Step:
    return lambda text, places: {at for at in places if holds(text, at)}


def _in_turn(steps: list[Step]) -> Step:
    def step(text: str, places: Places) -> Places:
        for each in steps:
            if not places:
                break
            places = each(text, places)
        return places

    return step


def _any_of(ways: list[Step]) -> Step:
    return lambda text, places: {at for way in ways for at in way(text, places)}


def _repeat(step: Step, least: int, most: int | None) -> Step:
    """Places only move on: after as many rounds as there are places, nothing new comes."""

    def repeat(text: str, places: Places) -> Places:
        rounds = len(text) + 1
        for _ in range(min(least, rounds)):
            places = step(text, places)
        reached, new = set(places), places
        for _ in range(rounds if most is None else min(most - least, rounds)):
            new = step(text, new) - reached
            if not new:
                break
            reached |= new
        return reached

    return repeat

"""What a setting of `config.json` is: one line of a table that says all there is to know of it.

`bsd.foundation.pruning_fields` is the table. What a value must be is said by a `SettingKind`: it
checks, words what is wrong, and says how the page lets people write it. No library does the
checking: reading the settings must cost less than loading pydantic, so this is the one place that
knows.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, TypeVar

from bsd.foundation.errors import Invalid
from bsd.foundation.spelling import NEVER, lifetime_seconds, shown

_Default = TypeVar("_Default")
_LINE = "line"  # in the metadata of a dataclass's field


class SettingKind(ABC):
    """What the values of a setting must be."""

    control: ClassVar[str]  # how the page lets it be written

    @property
    @abstractmethod
    def words(self) -> str:
        """What a value must be, as in `keep_recent must be …`."""

    @abstractmethod
    def check(self, name: str, value: object) -> Any:
        """Return a JSON value as the settings hold it; raises ValueError with a whole sentence."""

    @property
    def choices(self) -> Mapping[str, str]:
        """The texts that may be chosen, and what the page calls them; empty: they are not known."""
        return {}

    def note(self, text: str) -> str:
        """What stands beside the setting on the page: `text`, and what may be written there."""
        return text

    def refusal(self, name: str, value: object, reason: str = "") -> ValueError:
        """The words for a bad value, with the `reason` if it only lacks the right form."""
        expected = f"{name} must be {self.words}"
        return ValueError(f"{expected}. {reason}" if reason else f"{expected}, not {shown(value)}")


class Switch(SettingKind):
    """True or false."""

    control = "switch"
    words = "a boolean"

    def check(self, name: str, value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise self.refusal(name, value)


@dataclass(frozen=True, slots=True)
class Number(SettingKind):
    """A number between two bounds; `meaning` says of what."""

    least: int
    most: int
    meaning: str
    whole: bool = True

    control = "number"

    @property
    def words(self) -> str:
        return f"a number between {self.least} and {self.most} ({self.meaning})"

    def check(self, name: str, value: object) -> int | float:
        if self.fits(value):
            return value  # type: ignore[return-value]  # as it was given: 2 is not written as 2.0
        refusal = self.refusal(name, value)
        if isinstance(value, float) and self.whole:
            raise ValueError(str(refusal).replace("a number", "a whole number", 1))
        raise refusal

    def fits(self, value: object) -> bool:
        """Whether it is such a number."""
        known = int if self.whole else (int, float)
        numeric = isinstance(value, known) and not isinstance(value, bool)
        return numeric and self.least <= value <= self.most  # type: ignore[operator]

    def note(self, text: str) -> str:
        return f"{text} ({self.least}–{self.most})."


@dataclass(frozen=True, slots=True)
class Choice(SettingKind):
    """One of some texts; `labels` has what the page calls each."""

    labels: Mapping[str, str]

    control = "choice"

    @property
    def words(self) -> str:
        return " or ".join(f'"{one}"' for one in self.labels)

    @property
    def choices(self) -> Mapping[str, str]:
        return self.labels

    def check(self, name: str, value: object) -> str:
        if isinstance(value, str) and value in self.labels:
            return value
        raise self.refusal(name, value)


@dataclass(frozen=True, slots=True)
class Text(SettingKind):
    """A text of a form: `read` returns it as it is kept, or raises ValueError with the reason."""

    form: str
    read: Callable[[str], str]
    hint: str = ""
    optional: bool = False  # None will do, too

    control = "text"

    @property
    def words(self) -> str:
        return self.form

    def check(self, name: str, value: object) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str):
            raise self.refusal(name, value)
        try:
            return self.read(value)
        except ValueError as problem:
            raise self.refusal(name, value, str(problem)) from None

    def note(self, text: str) -> str:
        return f"{text} {self.hint}".strip()


@dataclass(frozen=True, slots=True)
class Texts(SettingKind):
    """A list of texts; `check_one` raises ValueError with the reason why one will not do."""

    form: str
    hint: str
    check_one: Callable[[str], object] = str

    control = "lines"

    @property
    def words(self) -> str:
        return self.form

    def check(self, name: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise self.refusal(name, value)
        for one in value:
            if not isinstance(one, str):
                raise ValueError(f"{name} must be {self.words}")  # noqa: TRY004 - as all refusals
            try:
                self.check_one(one)
            except ValueError as problem:
                raise self.refusal(name, one, str(problem)) from None
        return tuple(value)

    def note(self, text: str) -> str:
        return f"{text} {self.hint}".strip()


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table."""

    name: str
    default: Any
    kind: SettingKind
    place: str = ""  # its group on the page; empty: nobody sets it, bsd notes something there
    label: str = ""
    help: str = ""  # what it means, where the label does not say so
    unsettles: bool = False  # a change of it has settled entries looked at again
    per_call: bool = False  # one extraction may say otherwise
    job: str = ""  # the daemon's job whose times it says; empty: none
    alias: str = ""  # another name that is understood

    @property
    def note(self) -> str:
        """What stands beside it on the page, and in the man page."""
        return self.kind.note(self.help)


def setting(default: _Default, kind: SettingKind, *said: str, **more: Any) -> _Default:
    """A field of a dataclass that is a line of the table: place, label, help, and `more`."""
    more |= zip(("place", "label", "help"), said, strict=False)
    line = partial(Setting, default=default, kind=kind, **more)
    return field(default=default, metadata={_LINE: line})


def settings_of(table: type) -> dict[str, Setting]:
    """The lines of such a dataclass, by their names."""
    return {one.name: one.metadata[_LINE](name=one.name) for one in fields(table)}


# --- forms of texts ---


def check_cron(text: str) -> str:
    """When a job runs; raises ValueError."""
    text = text.strip()
    if not text.startswith("@") and len(text.split()) != 5:
        raise ValueError("It has five fields, or is one of @hourly, @daily, @weekly, @monthly")
    if re.search(r"(?<![a-z])[hr](?![a-z])", text.casefold()):
        raise ValueError("H and R stand for times by chance, which would change with every start")
    # Only here: most runs have the default schedules, and need no croniter.
    from croniter import (  # type: ignore[import-untyped]  # noqa: PLC0415
        CroniterError,
        croniter,
    )

    try:
        croniter.expand(text, strict=True)
        croniter(text, datetime(2024, 1, 1)).get_next()  # noqa: DTZ001 - does it ever fire?
    except CroniterError:
        raise ValueError(f"'{text:.40}' is none, or names a time that never comes") from None
    return text


def _lifetime(text: str) -> str:
    try:
        return NEVER if lifetime_seconds(text) is None else text
    except Invalid as problem:
        raise ValueError(problem.message) from None


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def cron(default: str) -> Text:
    """A schedule; the default one needs no look."""

    def read(text: str) -> str:
        return default if text.strip() == default else check_cron(text)

    return Text(f'a valid cron expression (e.g., "{default}")', read, "A cron expression.")


LIFETIME = Text(
    'a duration string like "24h", "1d", "7d", "30m". '
    'Minimum: 30 minutes (30m), Maximum: 52 weeks (52w), or "never"',
    _lifetime,
    "30m to 52w, as in 24h, 7d, 1d12h; or never.",
)
OFF = "off"
LIFETIME_OR_OFF = Text(
    'a duration string like "180d", "26w". '
    'Minimum: 30 minutes (30m), Maximum: 52 weeks (52w), or "never", or "off"',
    lambda text: OFF if text.strip().casefold() == OFF else _lifetime(text),
    "30m to 52w, as in 180d, 26w; never: for ever; off: none.",
)
MOMENT = Text("an ISO 8601 time or null", _moment, optional=True)

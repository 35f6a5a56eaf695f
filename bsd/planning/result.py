"""What became of one session, in the words of the contract. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from bsd.core.answers import Internal
from bsd.core.errors import BsdError, Busy, LeftAlone
from bsd.core.layout import SessionName
from bsd.planning.plan import Rate, Report
from bsd.planning.restore import Restored
from bsd.transcripts.change import Identity


class Status(StrEnum):
    """What became of one session; names the completed state."""

    EXTRACTED = "extracted"
    RESTORED = "restored"
    UNCHANGED = "unchanged"
    LEFT_ALONE = "left_alone"  # not ours to edit: foreign, version 1, moved to SQLite, …
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What was (or with `dry_run` would be) done to one session. Sizes are bytes of its file."""

    session: str
    status: Status
    dry_run: bool = False
    entries: int = 0
    values: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_saved: int = field(init=False, default=0)
    tokens_saved: Annotated[
        int, Field(description="Of what is sent as the session goes on now: an estimate")
    ] = 0
    rate: Internal[Rate] = field(default_factory=Rate)  # by which it was made
    characters_per_token: Annotated[float, Field(description="By which it was made")] = field(
        init=False, default=0.0
    )
    tokens_by: Annotated[
        Literal["usage", "rule_of_thumb"],
        Field(description="Whether the session itself has recorded the usage"),
    ] = field(init=False, default="rule_of_thumb")
    reasons: Annotated[
        Mapping[str, int], Field(description="How many entries were dealt with in which way")
    ] = field(default_factory=dict)
    unavailable: Annotated[
        Mapping[str, str], Field(description="What could not come back, by `entry key`: why not")
    ] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reason: Annotated[
        str | None, Field(description="Why it was left alone, was busy or failed")
    ] = None
    hint: str | None = None
    # For whoever asked or watches the session.
    # The kind of what `reason` tells; knows its exit code.
    error: Internal[type[BsdError] | None] = None
    # The file after this, if nothing in it is unknown to us.
    left_as: Internal[Identity | None] = None
    # Epoch seconds at which there may be more to do without a change.
    due_at: Internal[float | None] = None
    # Seconds after which a busy one will be idle, if known.
    again_in: Internal[float | None] = None
    # `reasons` tells only of what was appended since the last time.
    partial: Internal[bool] = False
    # There is something to do, but it was not worth it yet.
    postponed: Internal[bool] = False
    # There is more to do at once; others went first.
    unfinished: Internal[bool] = False

    def __post_init__(self) -> None:
        """Fill the members that follow from others."""
        fill = object.__setattr__
        fill(self, "bytes_saved", self.bytes_before - self.bytes_after)
        fill(self, "characters_per_token", round(self.rate.characters, 2))
        fill(self, "tokens_by", "usage" if self.rate.measured else "rule_of_thumb")


class Tally:
    """Adds up what several plans did to one session."""

    def __init__(self, name: SessionName, aim: Status, *, dry_run: bool = False) -> None:
        self._name = name
        self._aim = aim
        self.dry_run = dry_run
        self._last: Report | None = None
        self._bytes_before = 0
        self._status = Status.UNCHANGED
        self.error: BsdError | None = None  # what ended it early, if something did
        self._unavailable: dict[str, str] = {}
        self._bytes_after = 0
        self._left_as: Identity | None = None
        self._due_at: float | None = None
        self._postponed = False
        self.unfinished = False
        self.entries = 0
        self.values = 0
        self.tokens = 0

    @property
    def bytes_saved(self) -> int:
        return self._bytes_before - self._bytes_after

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Turn what goes wrong inside the block into the session's status."""
        try:
            yield
        except BsdError as error:
            self.error = error
            self._status = _status_of(error)

    def add(self, report: Report, *, committed: bool) -> None:
        """Count one plan; of one that was not committed nothing but its reasons counts."""
        if self._last is None:
            self._bytes_before = report.bytes_before
        self._last = report
        self._bytes_after = report.bytes_before
        if committed or self.dry_run:
            self._bytes_after = report.bytes_after
            self.entries += report.entries
            self.values += report.values
            self.tokens += report.tokens_saved
            if report.entries:
                self._status = self._aim

    def leave(
        self, left_as: Identity | None, *, due_at: float | None = None, postponed: bool = False
    ) -> None:
        """Note in which state the last plan left the session, and when it is due again."""
        self._left_as, self._due_at, self._postponed = left_as, due_at, postponed

    def miss(self, answer: Restored) -> None:
        """Note what of an entry could not come back."""
        for key, why in answer.unavailable.items():
            more = f" {answer.expired}" if answer.expired else ""
            self._unavailable[f"{answer.entry_id} {key}"] = why + more

    def miss_all(self, answer: Restored, why: str) -> None:
        """Note that all of an entry stays a placeholder, stored or not."""
        self.miss(answer)
        self._unavailable.update({f"{answer.entry_id} {key}": why for key in answer.keys_restored})

    def result(self) -> SessionResult:
        """The sum."""
        last, error = self._last, self.error
        return SessionResult(
            session=str(self._name),
            status=self._status,
            dry_run=self.dry_run,
            entries=self.entries,
            values=self.values,
            bytes_before=self._bytes_before,
            bytes_after=self._bytes_after,
            tokens_saved=self.tokens,
            rate=last.rate if last else Rate(),
            reasons=dict(last.reasons) if last else {},
            unavailable=self._unavailable,
            warnings=tuple(_warnings(last, dry_run=self.dry_run)) if last else (),
            reason=error.message if error else None,
            hint=error.hint if error else None,
            error=type(error) if error else None,
            left_as=self._left_as,
            due_at=self._due_at,
            again_in=error.again_in if isinstance(error, Busy) else None,
            partial=last is not None and last.partial,
            postponed=self._postponed,
            unfinished=self.unfinished,
        )


def _status_of(error: BsdError) -> Status:
    match error:
        case LeftAlone():
            return Status.LEFT_ALONE
        case Busy():
            return Status.BUSY
        case _:
            return Status.FAILED


def _warnings(report: Report, *, dry_run: bool) -> Iterator[str]:
    if dry_run and report.undone_before:
        yield (
            f"{report.undone_before} of the entries that would leave had been taken back by undo: "
            "they stay inline until somebody extracts them by hand, as this would"
        )
    for leak in report.leaked:
        yield (
            f"line {leak.index}: the arguments of a call of {leak.tool} hold the placeholder of "
            f"{leak.mentions}: the model may have written it somewhere"
        )

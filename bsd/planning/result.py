"""The result of extracting from or restoring one session, in the terms of the API.

Pure data: no input or output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Busy, LeftAlone
from bsd.core.formatting import iso_utc
from bsd.planning.plan import Plan, Rate, Report
from bsd.planning.restore import Restored
from bsd.planning.timing import Cause, Cut, Timing
from bsd.planning.timing_members import (
    CallsExpected,
    CallsNeeded,
    CostNow,
    CutReason,
    PriceStep,
    TokensRewritten,
    members,
)
from bsd.transcripts.change import Identity


class Status(StrEnum):
    """The outcome for one session."""

    EXTRACTED = "extracted"
    RESTORED = "restored"
    UNCHANGED = "unchanged"
    LEFT_ALONE = "left_alone"  # not bsd's to edit: foreign, version 1, moved to SQLite, …
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The change of one session, or with `dry_run` the change that would be made.

    Sizes are bytes of the session file.
    """

    session: str
    status: Status
    dry_run: bool = False
    entries: int = 0
    values: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_saved: int = field(init=False, default=0)
    tokens_saved: Annotated[
        int, Field(description="Estimated tokens of the extracted values in context")
    ] = 0
    rate: Internal[Rate] = field(default_factory=Rate)  # of the estimate
    characters_per_token: Annotated[float, Field(description="Rate of the token estimate")] = field(
        init=False, default=0.0
    )
    tokens_by: Annotated[
        Literal["usage", "rule_of_thumb"],
        Field(description="usage: measured by the recorded usage; rule_of_thumb: no usage"),
    ] = field(init=False, default="rule_of_thumb")
    reasons: Annotated[Mapping[str, int], Field(description="Number of entries by outcome")] = (
        field(default_factory=dict)
    )
    unavailable: Annotated[
        Mapping[str, str],
        Field(description="Values that could not come back, by `entry key`: the reason"),
    ] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reason: Annotated[
        str | None, Field(description="Why the session was left alone, was busy or failed")
    ] = None
    hint: str | None = None
    cache_warm_until: Annotated[
        str | None,
        Field(
            description="Values in context wait until then for the prompt cache to get cold (in "
            "a dry run by hand: they would wait if the daemon did it)"
        ),
        OMIT_EMPTY,
    ] = None
    tokens_ready: Annotated[
        int | None, Field(description="Estimated tokens of the values that wait"), OMIT_EMPTY
    ] = None
    cut_reason: CutReason = None
    tokens_rewritten: TokensRewritten = None
    cost_now: CostNow = None
    calls_needed: CallsNeeded = None
    calls_expected: CallsExpected = None
    price_step: PriceStep = None
    # For the caller and the work queue:
    # The class of the error in `reason`; it has the exit code.
    error: Internal[type[BsdError] | None] = None
    # The file afterwards; None if it holds lines that no plan has seen.
    left_as: Internal[Identity | None] = None
    # Epoch seconds: more may be due then, even if the session does not change.
    due_at: Internal[float | None] = None
    # Why values in context left; if none left, why they wait.
    timing: Internal[Timing | None] = None
    # The wait of the values that the last plan left in place, perhaps beside a cut.
    wait: Internal[Timing | None] = None
    # Seconds until a busy session is idle, if known.
    again_in: Internal[float | None] = None
    # `reasons` covers only lines appended since the last run.
    partial: Internal[bool] = False
    # A change is due but not worth a commit yet.
    postponed: Internal[bool] = False
    # More is due now; other sessions go first.
    unfinished: Internal[bool] = False

    def __post_init__(self) -> None:
        """Fill the fields that follow from others."""
        fill = object.__setattr__
        fill(self, "bytes_saved", self.bytes_before - self.bytes_after)
        fill(self, "characters_per_token", round(self.rate.characters, 2))
        fill(self, "tokens_by", "usage" if self.rate.measured else "rule_of_thumb")

    def plus(
        self, plan: Plan, aim: Status, *, in_effect: bool, left_as: Identity | None
    ) -> SessionResult:
        """Return the result after another plan for the session.

        Args:
            aim: the status if values were moved.
            in_effect: the plan was committed, or it is a dry run. Otherwise only its reasons count.
            left_as: the file afterwards; None if it holds lines that no plan has seen.
        """
        report, counts = plan.report, in_effect or self.dry_run
        wait = _wait(plan)
        made = (plan.timing if counts else None, self.timing)
        timing = next((each for each in made if each and not each.waits), wait)
        # By hand, a dry run names the wait of the daemon.
        waiting = timing if self.dry_run and wait is None else wait
        until = waiting.cold_at if waiting else None
        return replace(
            self,
            status=aim if counts and report.entries else self.status,
            entries=self.entries + (report.entries if counts else 0),
            values=self.values + (report.values if counts else 0),
            bytes_before=self.bytes_before or report.bytes_before,
            bytes_after=report.bytes_after if counts else report.bytes_before,
            tokens_saved=self.tokens_saved + (report.tokens_saved if counts else 0),
            rate=report.rate,
            reasons=dict(report.reasons),
            warnings=tuple(_warnings(report, dry_run=self.dry_run)),
            left_as=left_as,
            due_at=plan.due_at,
            timing=timing,
            wait=wait,
            cache_warm_until=None if until is None else iso_utc(until),
            tokens_ready=waiting.cut.removed if waiting and until is not None else None,
            **members(timing),
            price_step=timing.step if timing else None,
            partial=report.partial,
            postponed=bool(plan.edits) and not counts,
        )

    def missing(self, answer: Restored, why: str | None = None) -> SessionResult:
        """Return the result with the unavailable values of an entry added.

        Args:
            why: the reason why the entry's stored values stay placeholders too, if they do.
        """
        more = f" {answer.expired}" if answer.expired else ""
        lost = {f"{answer.entry_id} {key}": text + more for key, text in answer.unavailable.items()}
        if why is not None:
            lost.update({f"{answer.entry_id} {key}": why for key in answer.keys_restored})
        return replace(self, unavailable={**self.unavailable, **lost}) if lost else self

    def failed(self, error: BsdError) -> SessionResult:
        """Return the result after an error that ended the run."""
        return replace(
            self,
            status=_status_of(error),
            reason=error.message,
            hint=error.hint,
            error=type(error),
            again_in=error.again_in if isinstance(error, Busy) else None,
        )


def _wait(plan: Plan) -> Timing | None:
    """Return the wait of the values that a plan leaves in place; None if no value waits."""
    timing, ready = plan.timing, plan.report.tokens_ready
    if timing is None or timing.waits:
        return timing
    if timing.cause is Cause.ASKED or not ready or plan.warm_until is None:
        return None
    return Timing(Cause.WARM, Cut(ready, 0), plan.warm_until)  # a cut of the newest values only


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
            f"{report.undone_before} of the entries that would leave were brought back by undo: "
            "they stay inline until they are extracted by hand, as this would do"
        )
    for leak in report.leaked:
        yield (
            f"line {leak.index}: the arguments of a call of {leak.tool} hold the placeholder of "
            f"{leak.mentions}: the model may have written it somewhere"
        )

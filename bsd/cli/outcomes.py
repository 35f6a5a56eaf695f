"""The outcomes for the sessions of one call, as JSON and as text (SPEC §9)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bsd.cli.call import Call
from bsd.cli.output import (
    counted,
    note,
    print_json,
    print_table,
    say,
    say_wrapped,
    share,
    size,
)
from bsd.cli.problem import Problem
from bsd.cli.status_lines import in_flight_line
from bsd.core.answers import as_json
from bsd.core.errors import Busy
from bsd.core.layout import SessionName
from bsd.maintenance.disk_use import in_flight_use
from bsd.planning.plan import Rate
from bsd.planning.result import SessionResult, Status
from bsd.planning.timing_words import cost_text, cost_words, short, words

_NAMED_AT_MOST = 3  # sessions that were left alone for one reason

# The reasons why entries stay whole (SPEC §3).
MEANINGS = {
    "disabled": "extraction is switched off, or no type triggers it",
    "no_entry_id": "they have no id",
    "unsafe_entry_id": "their id is too long for a placeholder, or has odd characters",
    "duplicate_entry_id": "another entry has the same id",
    "already_extracted": "their values are in the store already",
    "turn_open": "an unfinished turn, the latest answer, and the thinking of the last turn",
    "pinned": "pinned by _extractable",
    "undone": "their extraction was taken back by undo",
    "recently_restored": "restored a short while ago",
    "type_not_matched": "no value of a triggering type",
    "too_recent": "among the newest messages (keep_recent)",
    "too_young": "younger than age_threshold_hours",
    "values_too_small": "no value is long enough (min_value_length)",
    "prefix_bound": "the signature of later thinking covers them (prefix_bound)",
    "cache_warm": "the prompt cache of its provider is warm (when)",
    "not_sent": "no longer sent, in a session whose file would not get smaller",
    "too_large_in_memory": "so many values in one line that reading it takes too much memory",
}


@dataclass
class Outcomes:
    """The results of all sessions of one call."""

    aim: Status  # the status of a changed session
    dry_run: bool = False
    results: list[SessionResult] = field(default_factory=list)
    stopped_by: int | None = None  # the signal's number
    stopped_in: SessionName | None = None
    torn_off: bool = False  # a second signal came; the next call cleans up
    not_begun: int = 0

    def count(self, status: Status) -> int:
        return sum(result.status is status for result in self.results)

    def total(self, member: str) -> int:
        """Return the sum of a member of all results."""
        return sum(getattr(result, member) or 0 for result in self.results)

    @property
    def rewriting(self) -> list[SessionResult]:
        """The results of cuts that make providers write a warm prompt cache again."""
        return [
            result
            for result in self.results
            if result.tokens_rewritten and result.timing and not result.timing.waits
        ]

    @property
    def cost(self) -> float | None:
        """The cost of `rewriting` in US dollars, without `unpriced`; None: no price is known."""
        costs = [each.cost_now for each in self.rewriting if each.cost_now is not None]
        return None if self.rewriting and not costs else round(sum(costs), 6)

    @property
    def unpriced(self) -> int:
        """The number of sessions in `rewriting` whose prices are unknown."""
        return sum(each.cost_now is None for each in self.rewriting)

    @property
    def reasons(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for result in self.results:
            total.update(result.reasons)
        return dict(sorted(total.items()))

    @property
    def exit_code(self) -> int:
        """The exit code of the call.

        0 on success, 4 if sessions were busy, 128 + n if signal n stopped the call, 1 if a value
        could not be restored. If sessions failed, the code of their errors (69 for a full disk), or
        1 if these differ.
        """
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        failed = {_exit_code(one) for one in self.results if one.status is Status.FAILED}
        if failed:
            return failed.pop() if len(failed) == 1 else 1
        if self.count(Status.BUSY):
            return Busy.exit_code
        return 1 if any(result.unavailable for result in self.results) else 0

    def as_json(self) -> dict[str, Any]:
        numbers = ("entries", "values", "bytes_before", "bytes_after", "bytes_saved")
        return {
            "dry_run": self.dry_run,
            "sessions": [as_json(result) for result in self.results],
            "totals": {
                "sessions": len(self.results),
                **{status.value: self.count(status) for status in Status},
                **{name: self.total(name) for name in (*numbers, "tokens_saved")},
                "tokens_rewritten": sum(each.tokens_rewritten or 0 for each in self.rewriting),
                "cost_now": self.cost,
                "unpriced": self.unpriced,
                "reasons": self.reasons,
            },
            "interrupted": self.stopped_by is not None,
            "interrupted_session": str(self.stopped_in) if self.stopped_in else None,
            "not_begun": self.not_begun,
        }


def _exit_code(failed: SessionResult) -> int:
    return failed.error.exit_code if failed.error else 1


def report(call: Call, outcomes: Outcomes, *, named: bool) -> None:
    """Print the outcomes for the sessions.

    Args:
        named: the user named the sessions; then unchanged ones are listed, too.
    """
    if call.json:
        print_json(outcomes.as_json())
    else:
        quiet = () if named else (Status.UNCHANGED, Status.LEFT_ALONE)
        _print_sessions(outcomes, [one for one in outcomes.results if one.status not in quiet])
        _print_totals(outcomes)
        _print_reasons(outcomes.reasons)
    _print_troubles(outcomes.results, named=named)
    if outcomes.stopped_by is not None:
        _print_stop(outcomes)
    elif outcomes.dry_run and not call.json:
        say("\nThis was a dry run: nothing was changed.")
    elif not call.json and (found := in_flight_use(call.layout)).files:
        say_wrapped(in_flight_line(found.as_json(), time.time()))


def _print_sessions(outcomes: Outcomes, shown: Sequence[SessionResult]) -> None:
    columns = ["SESSION", "", "ENTRIES", "VALUES", "BEFORE", "AFTER", "SAVED", "TOKENS"]
    if outcomes.aim is not Status.EXTRACTED:
        columns = columns[:6]  # restoring saves nothing
    rows = []
    for result in shown:
        row = [result.session, result.status.value.replace("_", " ")]
        if result.entries:
            row += [
                f"{result.entries:,}",
                f"{result.values:,}",
                size(result.bytes_before),
                size(result.bytes_after),
                f"{size(result.bytes_saved)} ({share(result.bytes_saved, result.bytes_before)})",
                f"~{result.tokens_saved:,}",
            ]
        rows.append([*row, *[""] * len(columns)][: len(columns)])
    if rows:
        print_table(columns, rows, right=columns[2:], spare=("VALUES", "BEFORE", "ENTRIES"))
        say()


def _print_totals(outcomes: Outcomes) -> None:
    touched = [result for result in outcomes.results if result.entries]
    if touched:
        values = counted(outcomes.total("values"), "value")
        entries = counted(outcomes.total("entries"), "entry")
        would = "would be " if outcomes.dry_run else ""
        where = f"of {entries} in {counted(len(touched), 'session')}"
        text = f"{values} {where} {would}{outcomes.aim.value}"
        if outcomes.aim is Status.EXTRACTED:
            saved = outcomes.total("bytes_saved")
            percent = share(saved, outcomes.total("bytes_before"))
            tokens = outcomes.total("tokens_saved")
            say_wrapped(f"{text}: {size(saved)} ({percent}) and ~{tokens:,} tokens saved")
            say_wrapped(_estimate([result.rate for result in touched]))
            if outcomes.rewriting:
                say_wrapped(_cost(outcomes))
        else:
            say(text)
    if count := outcomes.count(Status.UNCHANGED):
        say(f"no changes in {counted(count, 'session')}")
    if not outcomes.results and outcomes.stopped_by is None:
        say("there are no sessions")
    if outcomes.reasons.get("disabled"):
        note("extraction is switched off; `bsd config set enabled true` switches it on")


def _cost(outcomes: Outcomes) -> str:
    """Return a sentence on the warm prompt caches that the cuts change."""
    cuts = outcomes.rewriting
    tokens = sum(each.tokens_rewritten or 0 for each in cuts)
    would = "would be" if outcomes.dry_run else "are"
    cost = cost_text(outcomes.cost, outcomes.unpriced)
    return (
        f"an extraction by hand does not wait: {short(tokens)} cached tokens in "
        f"{counted(len(cuts), 'session')} {would} written again ({cost})"
    )


def _estimate(rates: Sequence[Rate]) -> str:
    """Return a sentence on how tokens were estimated, and which content is not counted."""
    measured = [rate.characters for rate in rates if rate.measured]
    others = [rate.characters for rate in rates if not rate.measured]
    if not measured:
        how = f"{_span(others)} characters each, since no session records its tokens"
    else:
        how = f"{_span(measured)} characters each, from the tokens that the sessions record"
        if others:
            how += f" ({_span(others)} in {len(others)} without a record)"
    none = "content that is not sent (copies, compacted entries), pictures and PDFs count as none"
    return f"tokens: {how}; {none}"


def _span(rates: Sequence[float]) -> str:
    low, high = (f"{round(rate, 1):g}" for rate in (min(rates), max(rates)))
    return low if low == high else f"{low} to {high}"


def _print_reasons(reasons: dict[str, int]) -> None:
    stay = {reason: count for reason, count in reasons.items() if reason != "extract"}
    if stay:
        say("\nEntries that stay whole:")
        ordered = sorted(stay.items(), key=lambda item: (-item[1], item[0]))
        rows = [(f"{count:,}", reason, MEANINGS.get(reason, "")) for reason, count in ordered]
        columns = ("ENTRIES", "REASON", "MEANING")
        print_table(columns, rows, right=("ENTRIES",), wraps=("MEANING",))


def _print_troubles(results: Sequence[SessionResult], *, named: bool) -> None:
    """Print errors and warnings to stderr; sessions left alone are grouped, unless `named`."""
    alone: dict[str, list[str]] = {}
    for result in results:
        reason = result.reason or "for no known reason"
        why = reason + (f" (try: {result.hint})" if result.hint else "")
        match result.status:
            case Status.FAILED:
                Problem(f"{result.session}: {reason}", _exit_code(result), result.hint).show()
            case Status.BUSY:
                Problem(f"{result.session} is busy: {reason}", Busy.exit_code, result.hint).show()
            case Status.LEFT_ALONE if named:
                note(f"{result.session} was left alone: {why}")
            case Status.LEFT_ALONE:
                alone.setdefault(why, []).append(result.session)
        if result.timing is not None and result.cache_warm_until is not None:
            tell = words if result.timing.waits else cost_words
            note(f"{result.session}: {tell(result.timing, time.time())}")
        for warning in result.warnings:
            note(f"{result.session}: {warning}")
        for key, missing in result.unavailable.items():
            note(f"{result.session}: {key} stays a placeholder: {missing}")
    for why, names in sorted(alone.items()):
        more = ", …" if len(names) > _NAMED_AT_MOST else ""
        shown = ", ".join(sorted(names)[:_NAMED_AT_MOST]) + more
        note(f"{counted(len(names), 'session')} left alone ({shown}): {why}")


def _print_stop(outcomes: Outcomes) -> None:
    done = len(outcomes.results)
    saves = outcomes.aim is Status.EXTRACTED and not outcomes.dry_run
    saved = f", {size(outcomes.total('bytes_saved'))} saved" if saves else ""
    note(f"Stopped: {counted(done, 'session')} done{saved}, {outcomes.not_begun} not begun")
    if outcomes.stopped_in is not None and outcomes.torn_off:
        note(f"{outcomes.stopped_in} was cut off; the next call finishes or undoes its change")
    elif outcomes.stopped_in is not None:
        note(f"{outcomes.stopped_in} was left as it was")

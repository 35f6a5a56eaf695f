"""Tells people what became of many sessions: a line for each that matters, totals, what to do."""

from __future__ import annotations

import time
from collections import Counter

from bsd.doors.cli.call import Call
from bsd.doors.cli.many import Outcomes, code_of
from bsd.doors.cli.output import counted, note, print_json, print_table, say, share, size
from bsd.doors.cli.problem import Problem
from bsd.doors.cli.status_text import in_flight_line
from bsd.foundation.errors import Busy
from bsd.surgery.result import SessionResult, Status
from bsd.surgery.tokens import Rate

# Why entries stay (SPEC §3), in words.
MEANINGS = {
    "disabled": "extraction is switched off, or no type triggers it",
    "no_entry_id": "no id to name them by",
    "unsafe_entry_id": "an id that cannot stand in a placeholder",
    "duplicate_entry_id": "an id that another entry has, too",
    "already_extracted": "their values are in the store already",
    "turn_open": "an unfinished turn, the latest answer, and what was thought in the last turn",
    "pinned": "pinned by _extractable",
    "undone": "their extraction was taken back by undo",
    "recently_restored": "restored a short while ago",
    "type_not_matched": "nothing of a triggering type",
    "too_recent": "among the newest messages (keep_recent)",
    "too_young": "younger than age_threshold_hours",
    "values_too_small": "no value is long enough (min_value_length)",
    "prefix_bound": "signed thinking further on stands on them (prefix_bound)",
    "too_large_in_memory": "so many values in one line that reading it takes too much memory",
}
_QUIET = (Status.UNCHANGED, Status.LEFT_ALONE)


def report(call: Call, outcomes: Outcomes, *, named: bool) -> None:
    """Print what became of the sessions; `named`: the user named them, each shall be listed."""
    if call.json:
        print_json(outcomes.as_json())
    else:
        _table(outcomes, [r for r in outcomes.results if named or r.status not in _QUIET])
        _totals(outcomes)
        if outcomes.dry_run:
            _reasons(outcomes)
    _troubles(outcomes, named=named)
    if outcomes.stopped_by is not None:
        _stopped(outcomes)
    elif outcomes.dry_run and not call.json:
        say("\nThis was a dry run: nothing was changed.")
    elif not call.json:
        _in_flight(call)


def _in_flight(call: Call) -> None:
    """Say what still lies there of the sessions as they were: perhaps nobody comes after us."""
    from bsd.care.disk_use import in_flight_use  # a dry run loads nothing of commits

    found = in_flight_use(call.layout)
    if found.files:
        say(in_flight_line(found.as_json(), time.time()))


def _table(outcomes: Outcomes, shown: list[SessionResult]) -> None:
    columns = ["SESSION", "", "ENTRIES", "VALUES", "BEFORE", "AFTER", "SAVED", "TOKENS"]
    if outcomes.aim is not Status.EXTRACTED:
        columns = columns[:6]  # nothing is saved by giving back
    rows = [_row(result)[: len(columns)] for result in shown]
    if rows:
        print_table(columns, rows, right=columns[2:])
        say()


def _row(result: SessionResult) -> list[str]:
    saved = result.bytes_before - result.bytes_after
    numbers = [
        f"{result.entries:,}",
        f"{result.values:,}",
        size(result.bytes_before),
        size(result.bytes_after),
        f"{size(saved)} ({share(saved, result.bytes_before)})",
        f"~{result.tokens_saved:,}",
    ]
    status = result.status.value.replace("_", " ")
    return [result.session, status, *(numbers if result.entries else [""] * len(numbers))]


def _totals(outcomes: Outcomes) -> None:
    values = sum(result.values for result in outcomes.results)
    entries = sum(result.entries for result in outcomes.results)
    touched = sum(result.entries > 0 for result in outcomes.results)
    would = "would be " if outcomes.dry_run else ""
    where = f"of {counted(entries, 'entry')} in {counted(touched, 'session')}"
    text = f"{counted(values, 'value')} {where} {would}{outcomes.aim.value}"
    if outcomes.aim is Status.EXTRACTED:
        tokens = sum(result.tokens_saved for result in outcomes.results)
        before = sum(result.bytes_before for result in outcomes.results)
        percent = share(outcomes.bytes_saved, before)
        text += f": {size(outcomes.bytes_saved)} ({percent}) and ~{tokens:,} tokens saved"
    if touched:
        say(text)
        if outcomes.aim is Status.EXTRACTED:
            say(_estimate(outcomes.results))
    if count := outcomes.count(Status.UNCHANGED):
        say(f"nothing to do in {counted(count, 'session')}")
    if not outcomes.results and outcomes.stopped_by is None:
        say("there are no sessions")
    if outcomes.reasons["disabled"]:
        note("extraction is switched off; `bsd config set enabled true` switches it on")


def _estimate(results: list[SessionResult]) -> str:
    """How the tokens were estimated, and what they do not count."""
    rates = [result.rate for result in results if result.entries]
    measured = sorted(rate.characters for rate in rates if rate.measured)
    if not measured:
        how = f"{Rate().characters:g} characters each, since no session says what it was charged"
    else:
        low, high = f"{measured[0]:.1f}", f"{measured[-1]:.1f}"
        how = low if low == high else f"{low} to {high}"
        how += " characters each, by what the sessions were charged"
        if others := len(rates) - len(measured):
            how += f" ({Rate().characters:g} in {others} that do not say)"
    return f"tokens: {how}; what is not sent (copies, what was compacted) counts none"


def _reasons(outcomes: Outcomes) -> None:
    stay = {reason: count for reason, count in outcomes.reasons.items() if reason != "extract"}
    if stay:
        say("\nEntries that stay whole:")
        ordered = sorted(stay.items(), key=lambda item: (-item[1], item[0]))
        rows = [(f"{count:,}", reason, MEANINGS.get(reason, "")) for reason, count in ordered]
        print_table(("ENTRIES", "REASON", "MEANING"), rows, right=("ENTRIES",))


def _troubles(outcomes: Outcomes, *, named: bool) -> None:
    alone: Counter[str] = Counter()
    for result in outcomes.results:
        reason = result.reason or "for no known reason"
        match result.status:
            case Status.FAILED:
                Problem(f"{result.session}: {reason}", code_of(result), result.hint).show()
            case Status.BUSY:
                Problem(f"{result.session} is busy: {reason}", Busy.exit_code, result.hint).show()
            case Status.LEFT_ALONE if named:
                note(f"{result.session} was left alone: {reason}{_try(result)}")
            case Status.LEFT_ALONE:
                alone[reason + _try(result)] += 1
        for warning in result.warnings:
            note(f"{result.session}: {warning}")
        for key, why in result.unavailable.items():
            note(f"{result.session}: {key} stays a placeholder: {why}")
    for reason, count in sorted(alone.items()):
        note(f"{counted(count, 'session')} left alone: {reason}")


def _try(result: SessionResult) -> str:
    return f" (try: {result.hint})" if result.hint else ""


def _stopped(outcomes: Outcomes) -> None:
    done = len(outcomes.results)
    saves = outcomes.aim is Status.EXTRACTED and not outcomes.dry_run
    saved = f", {size(outcomes.bytes_saved)} saved" if saves else ""
    note(f"Stopped: {counted(done, 'session')} done{saved}, {outcomes.not_begun} not begun")
    if outcomes.stopped_in is not None and outcomes.torn_off:
        note(f"{outcomes.stopped_in} was cut off; the next call finishes or undoes what it began")
    elif outcomes.stopped_in is not None:
        note(f"{outcomes.stopped_in} was left as it was")

"""What people are told of verbs: their answers in words and tables, and how their values are typed.

Programs get the answers themselves, with --json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from bsd.doors.cli.output import counted, note, print_table, say, size
from bsd.foundation.answers import Answer
from bsd.foundation.errors import Invalid

if TYPE_CHECKING:  # each verb loads its own
    from bsd.foundation.layout import SessionName
    from bsd.surgery.edit import Extractable, ExtractableSet
    from bsd.surgery.restore import Restored
    from bsd.surgery.undo import PastOperation, Undone
    from bsd.surgery.view import Context
    from bsd.verbs.history import HistoryList
    from bsd.verbs.restore import Restore
    from bsd.verbs.summary import Summary

# Says to people what was answered; the session is None where a verb asks of all.
Tell = Callable[[Any, Any], None]


def _plainly(answer: Answer, _: object) -> None:
    """Say what was answered, in its own words: one line a field."""
    for name, value in answer.as_json().items():
        say(f"{name.replace('_', ' ')}: {value}")


@dataclass(frozen=True, slots=True)
class VerbWords:
    """What the command line adds to a verb."""

    tell: Tell = _plainly
    # Whether arguments and answer speak of trouble, which the exit code tells.
    failed: Callable[[Any, Any], bool] = lambda _asked, _answer: False
    # Arguments that are typed in a way of their own.
    types: Mapping[str, click.ParamType[Any]] = field(default_factory=dict)


def _tell_restored(answer: Restored, session: SessionName) -> None:
    keys, sizes = answer.keys_restored, answer.sizes_bytes
    if keys:
        total = size(sum(sizes.values()))
        say(f"Restored {counted(len(keys), 'value')} ({total}) of {answer.entry_id} in {session}")
        for key in keys:
            say(f"  {key}  {size(sizes[key])}")
    for key, why in answer.unavailable.items():
        note(f"{key}: {why}")
    if answer.expired is not None:
        note(answer.expired)
    for key in answer.changed:
        note(f"{key}: somebody has changed it since it was extracted; it stays as it is")
    if answer.previous_restored_at is not None:
        say(f"It was restored before, at {answer.previous_restored_at}. {answer.suggestion}")


def _is_lost(asked: Restore, answer: Restored) -> bool:
    return bool(answer.unavailable or (asked.keys and answer.changed))


def _tell_undone(answer: Undone, session: SessionName) -> None:
    what = f"operation {answer.undone} ({answer.action}, {answer.at[:19]} UTC)"
    say(f"Undid {what} of {session}: {counted(len(answer.entries), 'entry')}")
    if answer.gone:
        say(f"  Thrown away by another program since: {counted(len(answer.gone), 'entry')}")
    for number in answer.operations:
        say(f"  `bsd undo {session} {number}` does it again")
    if answer.action == "extract":
        note(
            f"It stays inline until `bsd extract {session}` takes it out again, or "
            f"`bsd set-extractable {session} ENTRY unset` gives an entry back to the daemon"
        )


# --- set-extractable ---

_VALUES: dict[str, bool | None] = {"true": True, "false": False, "unset": None}


class _ExtractableType(click.ParamType[Any]):
    name = "value"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> Extractable:
        """Read `true`, `false`, a whole number, or `unset` (None); raises Invalid."""
        text = str(value).lower()
        if text in _VALUES:
            return _VALUES[text]
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        raise Invalid(
            f"{value!r} is no value for _extractable", hint="true, false, a number, or unset"
        )

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(word) for word in _VALUES if word.startswith(incomplete)]


def _tell_extractable(answer: ExtractableSet, _: SessionName) -> None:
    now, before = _shown(answer.extractable), _shown(answer.previous)
    say(f"Set _extractable={now} for entry {answer.entry_id} (before: {before})")


def _shown(value: bool | int | None) -> str:
    return "unset" if value is None else str(value).lower()


# --- what only looks ---


def _tell_context(found: Context, _: SessionName) -> None:
    columns = ("HASH", "INDEX", "ID", "TYPE", "SIZE", "EXTRACTABLE", "EXTRACTED")
    rows = [
        (
            entry.hash,
            str(entry.index),
            entry.id or "",
            entry.type,
            size(entry.size_bytes),
            "" if entry.extractable is None else str(entry.extractable).lower(),
            "yes" if entry.extracted else "",
        )
        for entry in found.entries
    ]
    print_table(columns, rows, right=("INDEX", "SIZE"))
    out = f"{counted(found.extracted_entries, 'entry')} extracted"
    stored = size(found.extracted_size_bytes)
    say(
        f"\n{found.session}: {counted(found.total_entries, 'entry')}, "
        f"{size(found.size_bytes)}; {out} ({stored}), "
        f"{found.extractable_entries} extractable; "
        f"last extraction: {found.last_extracted_at or 'never'}"
    )


_MOST_IDS = 3  # of an operation


def _tell_history(found: HistoryList, session: SessionName) -> None:
    if not found.operations:
        say(f"nothing was done to {session}, or it is no longer kept")
        return
    columns = ("OP", "WHEN (UTC)", "WHAT", "BY", "STATE", "SIZE", "ENTRIES")
    print_table(columns, map(_operation_row, found.operations), right=("OP", "SIZE"))
    if older := found.kept - len(found.operations):
        say(f"… and {older:,} older: --limit {found.kept}")


def _operation_row(one: PastOperation) -> tuple[str, ...]:
    grown = one.bytes_after - one.bytes_before
    named = one.entry_ids[:_MOST_IDS]
    more = one.entries - len(named)
    return (
        str(one.operation),
        one.at[:19],
        one.action + (f" of {one.undoes}" if one.undoes is not None else ""),
        one.actor,
        one.state.replace("_", " "),
        ("−" if grown < 0 else "+") + size(abs(grown)),
        ", ".join(named) + (f" and {more:,} more" if more > 0 else ""),
    )


def _tell_summary(found: Summary, session: SessionName) -> None:
    told = found.summary
    counts = (
        counted(told.message_count, "message"),
        counted(told.user_messages, "user message"),
        counted(told.tool_calls, "tool call"),
        told.duration_estimate,
    )
    say(f"{session}: {told.session_type}, {', '.join(counts)}", style="1")
    for title, named in (("Tools", told.tools_used), ("Models", told.models_used)):
        if named:
            say(f"{title}: {', '.join(named)}")
    for title, lines in (
        ("Asked for", told.user_requests),
        ("Done", told.key_actions),
        ("Thoughts", told.thinking_insights),
        ("Files written", told.files_created),
        ("Errors", told.errors),
    ):
        if lines:
            say(f"\n{title}")
            for line in lines:
                say(f"  - {line}")


WORDS = {
    "restore": VerbWords(_tell_restored, failed=_is_lost),
    "undo": VerbWords(_tell_undone),
    "set_extractable": VerbWords(_tell_extractable, types={"value": _ExtractableType()}),
    "get_context": VerbWords(_tell_context),
    "history": VerbWords(_tell_history),
    "summary": VerbWords(_tell_summary),
}

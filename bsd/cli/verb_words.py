"""What people are told of verbs: their answers in words and tables, and how their values are typed.

Programs get the answers themselves, with --json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.shell_completion import CompletionItem

from bsd.actions.answers import as_json
from bsd.actions.history import list_history
from bsd.actions.parameters import Complete, all_words
from bsd.actions.read_extracted import text_of_value
from bsd.actions.show import ShownEntries, ShownValue, WholeEntry
from bsd.cli.call import BsdCommand, ask_first
from bsd.cli.completion import say_who_serves
from bsd.cli.output import (
    counted,
    note,
    one_line,
    print_table,
    safe,
    say,
    say_check,
    size,
    styled,
)
from bsd.cli.privileges import FileOwner, environment_of
from bsd.cli.problem import Problem
from bsd.core.definition import Answer
from bsd.core.errors import Invalid
from bsd.maintenance.file_owners import give_back
from bsd.planning.view import EntryView
from bsd.transcripts.reader import parse_entry

if TYPE_CHECKING:  # each verb loads its own
    from bsd.actions.checks import Examined
    from bsd.actions.history import HistoryList
    from bsd.actions.list_sessions import AllSessions
    from bsd.actions.search import FoundEntry, FoundInAll
    from bsd.actions.summary import Summary
    from bsd.actions.verbs import EverySession, Restore, Undo, Verify
    from bsd.cli.verbs import CallHands
    from bsd.core.layout import SessionName
    from bsd.maintenance.verify import Verification
    from bsd.planning.edit import Extractable, ExtractableSet
    from bsd.planning.restore import Restored
    from bsd.planning.undo import PastOperation, Undone
    from bsd.planning.view import Context

# Says to people what was answered; the session is None where a verb asks of all.
Tell = Callable[[Any, Any], None]


def _plainly(answer: Answer, _: object) -> None:
    """Say what was answered, in its own words: one line a field."""
    for name, value in as_json(answer).items():
        say(f"{name.replace('_', ' ')}: {value}")


def _at_once(_hands: object, _session: object, asked: Any) -> Any:
    return asked


@dataclass(frozen=True, slots=True)
class VerbWords:
    """What the command line adds to a verb."""

    tell: Tell = _plainly
    # From arguments and answer, the exit code where the answer tells of trouble.
    failed: Callable[[Any, Any], int] = lambda _asked, _answer: 0
    # What comes before it is done, given hands, session, arguments, and what was given for the
    # parameters `also`; returns the arguments.
    begin: Callable[..., Any] = _at_once
    also: Sequence[click.Parameter] = ()
    # Whether Ctrl-C ends it with what it has by then.
    ends_early: Callable[[Any], bool] = lambda _asked: False
    # Arguments that are typed in a way of their own; see `parameters`.
    types: Mapping[str, click.ParamType[Any]] = field(default_factory=dict)
    completed: Mapping[str, Complete] = field(default_factory=dict)
    own: Mapping[str, click.Parameter | None] = field(default_factory=dict)
    kind: type[BsdCommand] = BsdCommand


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


def _is_lost(asked: Restore, answer: Restored) -> int:
    return int(bool(answer.unavailable or (asked.keys and answer.changed)))


def _is_restore(action: str) -> bool:
    return action.startswith("restore")


def _ask_about_undo(hands: CallHands, session: SessionName, asked: Undo, *, yes: bool) -> Undo:
    """Say what undoing a restore does, and ask; raises Conflict if the answer is no."""
    if yes:
        return asked
    operation = _to_be_undone(list_history(cast("Any", hands), session).operations, asked.op)
    if operation is None or not _is_restore(operation.action):
        return asked
    named = f"{session} {asked.op}" if asked.op is not None else str(session)
    values = f"{counted(operation.values, 'value')} of {counted(operation.entries, 'entry')}"
    ask_first(
        f"Undo operation {operation.operation} ({operation.action}, {operation.at[:19]} UTC): "
        f"take {values} out of {session} again?",
        f"`bsd undo {named} --yes`",
    )
    return replace(asked, op=operation.operation)


def _to_be_undone(history: Sequence[PastOperation], number: int | None) -> PastOperation | None:
    """Find the operation that an undo of `number`, or of the newest, takes back."""
    for one in history:
        if one.operation == number:
            return one
        if number is None and one.undoes is None and one.state != "undone":
            return one
    return None


def _tell_undone(answer: Undone, session: SessionName) -> None:
    what = f"operation {answer.undone} ({answer.action}, {answer.at[:19]} UTC)"
    out = ", whose values are taken out again" if _is_restore(answer.action) else ""
    say(f"Undid {what} of {session}: {counted(len(answer.entries), 'entry')}{out}")
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


# Why entries stay (SPEC §3), in words.
MEANINGS = {
    "disabled": "extraction is switched off, or no type triggers it",
    "no_entry_id": "no id to name them by",
    "unsafe_entry_id": "an id that is too long for a placeholder, or has odd characters",
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


def _tell_extractable(answer: ExtractableSet, _: SessionName) -> None:
    now, before = _shown(answer.extractable), _shown(answer.previous)
    say(f"Set _extractable={now} for entry {answer.entry_id} (before: {before})")
    if answer.stays is not None:
        why = MEANINGS.get(answer.stays)
        note(f"It does not leave now: {answer.stays}" + (f" ({why})" if why else ""))


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


# --- sessions ---

_TITLE = 60  # characters


def _begin_sessions(hands: CallHands, _: object, asked: EverySession) -> EverySession:
    hands.call.finish_due()
    say_who_serves(hands.layout, asked.agent)
    return replace(asked, figures=hands.call.json)  # people are not shown them


def _tell_sessions(found: AllSessions, _: object) -> None:
    columns = ("SESSION", "SIZE", "OUT", "ENTRIES", "UPDATED", "STATUS", "TITLE")
    rows = [
        (
            one.session,
            size(one.size),
            size(one.extracted_bytes) if one.extracted_entries else "",
            str(one.extracted_entries or ""),
            datetime.fromisoformat(one.updated).astimezone().strftime("%Y-%m-%d %H:%M"),
            one.status or "",
            one_line(one.title or one.label or "", _TITLE),
        )
        for one in found.sessions
    ]
    if rows:
        print_table(columns, rows, right=columns[1:4], last_may_shrink=True)
        say()
    out = sum(one.extracted_bytes for one in found.sessions)
    total = f"{counted(len(found.sessions), 'session')}, {size(found.total_size)}"
    say(f"{total}; {size(out)} is out of them, in store or archive" if out else total)
    if found.problem:
        note(f"The text of the sessions was not searched: {found.problem}")
    for one in found.sessions:
        if one.no_session:
            what = f"{one.session} is no session ({one.no_session}), and nothing more leaves it"
            note(f"{what}; `bsd restore-all {one.session}` puts back what was taken out of it")
    for agent in found.agents:
        if agent.note:
            note(f"{agent.name}: {agent.note}")


# --- search ---

_LONG_TITLE = 100  # characters


def _begin_search(hands: CallHands, _: object, asked: Any) -> Any:
    hands.call.log(writes=False)
    return asked


def _tell_found(found: FoundInAll, _: object) -> None:
    for one in found.sessions:
        say(one.session, style="1")
        say(f"  {one_line(one.title, _LONG_TITLE)}\n")
    print_hits(found.results)
    many = [counted(len(found.sessions), "session")] if found.sessions else []
    many += [counted(len(found.results), "entry")] if found.results else []
    if many or not found.problem:
        say(", ".join(many) or ("Nothing was found." if not found.stopped else "Nothing yet."))
    if found.stopped:
        note("Stopped before all was searched.")
    for left in found.unread:
        text = f"{left.session} was not searched: {left.error}"
        Problem(text, left.problem.exit_code, left.problem.hint).show()
    if found.problem:
        _no_index(found).show()


def _no_index(found: FoundInAll) -> Problem:
    return Problem(f"no text was searched: {found.problem}", 1, f"bsd search --all {found.query}")


def print_hits(hits: Sequence[FoundEntry]) -> None:
    """Print entries that were found, with the words in them."""
    for hit in hits:
        badge = "  📎 extracted" if hit.where == "extracted" else ""
        badge += "  gone (`bsd archive`)" if hit.gone else ""
        say(f"{hit.session}  #{hit.index}  {hit.entry_id or ''}{badge}".rstrip(), style="1")
        sys.stdout.write(f"  {_marked(hit)}\n\n")


def _marked(hit: FoundEntry) -> str:
    shown, done = "", 0
    for start, end in hit.matches:
        shown += safe(hit.snippet[done:start])
        shown += styled(safe(hit.snippet[start:end]), "1;33", sys.stdout)
        done = end
    return shown + safe(hit.snippet[done:])


def _unread(_: object, found: FoundInAll) -> int:
    """Of the first that could not be read."""
    return next((one.problem.exit_code for one in found.unread), 1 if found.problem else 0)


# --- show ---

_PREVIEW = 200  # characters (seed 000, SP-06)


def _tell_shown(found: ShownEntries | ShownValue, _: object) -> None:
    match found:
        case ShownValue(value=value):
            _print_value(text_of_value(value))
        case ShownEntries(entries=entries, full=full):
            whole = [one for one in entries if isinstance(one, WholeEntry)]
            for one in whole:
                _print_one(one, full=full)
            if not whole:
                print_entries(entries)


def _print_value(text: str) -> None:
    """Print a value as it is if a program reads it, made safe for people."""
    if sys.stdout.isatty():
        say(text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def print_entries(views: Sequence[EntryView]) -> None:
    """Print entries as a table."""
    rows = [
        (
            str(view.index),
            view.id or "",
            view.type,
            size(view.size),
            "📎" if view.extracted else "",
            " ".join(_notes(view)),
            one_line(view.preview, 80),
        )
        for view in views
    ]
    columns = ("INDEX", "ID", "TYPE", "SIZE", "", "NOTES", "TEXT")
    print_table(columns, rows, right=("INDEX", "SIZE"), last_may_shrink=True)
    out = sum(view.extracted for view in views)
    say(f"\n{counted(len(views), 'entry')}, {out} of them extracted")


def _notes(view: EntryView) -> Iterator[str]:
    if view.extractable is not None:
        yield f"_extractable={str(view.extractable).lower()}"
    if view.restored is not None:
        yield f"restored {view.restored}"


def _print_one(view: WholeEntry, *, full: bool) -> None:
    badge = "📎 extracted" if view.extracted else ""
    head = (f"#{view.index}", view.id or "(no id)", view.type, size(view.size), badge)
    say("  ".join(part for part in (*head, *_notes(view)) if part))
    say(_readable(view.line) if full else f"  {one_line(view.preview, _PREVIEW)}")
    for key, value in view.content.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2)
        say(f"\n📎 {key} ({size(len(text.encode('utf-8', 'surrogatepass')))})")
        say(text if full else f"  {one_line(text, _PREVIEW)}")
    for key, why in view.unavailable.items():
        say(f"\n📎 {key}: {why}")
    say()


def _readable(line: str) -> str:
    entry = parse_entry(line.encode("utf-8", "surrogateescape"))
    return line if entry is None else json.dumps(entry, indent=2, ensure_ascii=False)


# --- verify, doctor ---


def _begin_verify(hands: CallHands, _: object, asked: Verify) -> Verify:
    if asked.repair:
        hands.call.surgeon()  # what is in flight is finished or undone first
    else:
        hands.call.log(writes=False)
        hands.call.finish_due()
    return asked


def _tell_verified(found: Verification, _: object) -> None:
    if found.findings:
        rows = [
            (
                "repaired" if finding.repaired else "" if finding.harmless else "open",
                finding.kind.replace("_", " "),
                finding.where,
                finding.message + (f" (try: {finding.hint})" if finding.hint else ""),
            )
            for finding in found.findings
        ]
        print_table(("", "WHAT", "WHERE", "MESSAGE"), rows)
        say()
    packed = f", {counted(found.packed, 'line')} in the archive" if found.packed else ""
    numbers = (
        f"{counted(found.sessions, 'session')}, {counted(found.placeholders, 'placeholder')}, "
        f"{counted(found.files, 'stored file')}{packed}"
        f"{f', {found.expired:,} expired' if found.expired else ''}"
        f"{f', {found.unmarked:,} without marker' if found.unmarked else ''}"
    )
    for why in found.elsewhere:
        say(f"{why}: its sessions are verified there")
    left = sum(finding.is_open for finding in found.findings)
    say(f"{numbers}: {'all as it should be' if not left else counted(left, 'problem') + ' left'}")


class _Doctor(BsdCommand):
    """Looks as the root's owner, whom root may have given back what is the owner's.

    Of what lies in flight it only tells.
    """

    finishes_due = False

    def first_as_root(self, ctx: click.Context) -> Callable[[Path, FileOwner], None] | None:
        return _give_back if ctx.params["repair"] else None


def _give_back(root: Path, owner: FileOwner) -> None:
    count = give_back(root, environment_of(owner, os.environ), owner.uid, owner.gid)
    note(f"({count} files and directories of root's are {owner}'s now)")


def _tell_examined(found: Examined, _: object) -> None:
    for check in found.checks:
        say_check(check.level.value, f"{check.name:<12}{check.message}")
        if check.hint:
            say(f"{'':14}Try: {check.hint}")


WORDS = {
    "all_sessions": VerbWords(_tell_sessions, begin=_begin_sessions, own={"figures": None}),
    "search_all": VerbWords(
        _tell_found,
        failed=_unread,
        begin=_begin_search,
        own={"words": all_words("words")},
        ends_early=lambda asked: asked.all,
    ),
    "show": VerbWords(_tell_shown),
    "restore": VerbWords(_tell_restored, failed=_is_lost),
    "undo": VerbWords(
        _tell_undone,
        begin=_ask_about_undo,
        also=[click.Option(["--yes"], is_flag=True, help="Do not ask.")],
    ),
    "set_extractable": VerbWords(_tell_extractable, types={"value": _ExtractableType()}),
    "get_context": VerbWords(_tell_context),
    "history": VerbWords(_tell_history),
    "summary": VerbWords(_tell_summary),
    "verify": VerbWords(
        _tell_verified, failed=lambda _, found: int(not found.clean), begin=_begin_verify
    ),
    "doctor": VerbWords(_tell_examined, failed=lambda _, found: int(not found.ok), kind=_Doctor),
}

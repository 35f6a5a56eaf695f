"""Actions as tests call them: by a surgeon that is there, answered in JSON's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import bsd.actions.context_tool
import bsd.actions.edit
import bsd.actions.extract
import bsd.actions.history
import bsd.actions.restore
import bsd.actions.show
import bsd.actions.summary
from bsd.actions.context import ActionContext
from bsd.core.answers import as_json
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.planning import edit as editing
from bsd.planning import restore as restore_planner
from bsd.planning import view
from bsd.planning.edit import EditableEntry, Wish
from bsd.planning.plan import Means, Plan, Report
from bsd.planning.redact import CallToRedact, Redaction, plan_redact
from bsd.planning.result import SessionResult
from bsd.planning.undo import PastOperation
from bsd.planning.view import EntryView, views
from bsd.sessions.idle import RetryBudget
from bsd.sessions.notes import Notes
from bsd.sessions.session import Queries
from bsd.sessions.surgeon import Surgeon
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript


def context_of(surgeon: Queries, progress: Callable[[int], None] = lambda _: None) -> ActionContext:
    """The context of actions that this surgeon would do."""
    if not isinstance(surgeon, Surgeon):
        budget = RetryBudget(clock=surgeon.clock)
        return ActionContext(layout=surgeon.layout, config=surgeon.config, budget=budget)
    return ActionContext(
        layout=surgeon.layout,
        config=surgeon.config,
        actor=surgeon.actor,
        budget=surgeon.budget,
        progress=lambda done, of=None: progress(done),
        noticed=surgeon.operator.noticed,
        in_flight=surgeon.operator.inflight,
    )


def history_of(layout: Layout, name: SessionName) -> list[PastOperation]:
    """The operations on a session that are kept, the newest first."""
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))
    return list(bsd.actions.history.list_history(context, name).operations)


def entries(queries: Queries, name: SessionName, start: int = 0) -> list[EntryView]:
    """The entries of a session from line `start` on, as they stand."""
    return queries.look(name, lambda source, fmt, _: list(views(source, fmt, start=start)))


def extraction(
    queries: Queries, name: SessionName, overrides: Mapping[str, Any] | None = None
) -> SessionResult:
    """What an extraction by hand would do now."""
    context = context_of(queries)
    return bsd.actions.extract.extract(context, name, dry_run=True, settings=overrides)


def extracted_content(queries: Queries, name: SessionName, entry: str) -> dict[str, Any]:
    """What was taken out of an entry, by key, without putting it back."""

    def ask(source: Transcript, fmt: TranscriptFormat, means: Means) -> dict[str, Any]:
        return as_json(view.extracted_content(source, fmt, entry, means.stored))

    return queries.look(name, ask)


def restored_copy(
    queries: Queries, name: SessionName, write: Callable[[bytes], object]
) -> tuple[int, dict[str, str]]:
    """A session as it would be with everything back."""

    def ask(source: Transcript, fmt: TranscriptFormat, means: Means) -> tuple[int, dict[str, str]]:
        return restore_planner.restored_copy(source, fmt, means.stored, write)

    return queries.look(name, ask)


def show_entry(queries: Queries, name: SessionName, entry: str) -> EditableEntry:
    """One entry as a person may edit it."""
    return queries.look(name, lambda source, fmt, _: editing.show_entry(source, fmt, entry))


def context(queries: Queries, name: SessionName) -> dict[str, Any]:
    return as_json(bsd.actions.context_tool.get_context(context_of(queries), name))


def show(queries: Queries, name: SessionName, **which: Any) -> list[dict[str, Any]]:
    """Entries, or one of them, as the command line shows them."""
    shown = as_json(bsd.actions.show.show_entries(context_of(queries), name, **which))
    found: list[dict[str, Any]] = shown["entries"]
    return found


def summary(layout: Layout, name: SessionName) -> dict[str, Any]:
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))
    return as_json(bsd.actions.summary.summarize_session(context, name))


def restore(
    surgeon: Surgeon, name: SessionName, entry: str, keys: Sequence[str] | None = None
) -> dict[str, Any]:
    return as_json(bsd.actions.restore.restore(context_of(surgeon), name, entry, keys))


def set_extractable(
    surgeon: Surgeon, name: SessionName, entry: str, value: bool | int | None
) -> dict[str, Any]:
    return as_json(bsd.actions.edit.set_extractable(context_of(surgeon), name, entry, value))


def change_context(
    surgeon: Surgeon, name: SessionName, action: str, targets: Sequence[Any], **how: bool
) -> dict[str, Any]:
    change = bsd.actions.context_tool.change_context
    return as_json(change(context_of(surgeon), name, action, targets, **how))


def edit(
    surgeon: Surgeon, name: SessionName, entry: str, wish: Wish, seen: str | None = None
) -> dict[str, Any]:
    return as_json(bsd.actions.edit.edit_entry(context_of(surgeon), name, entry, wish, seen))


def restore_all(
    surgeon: Surgeon,
    name: SessionName,
    *,
    leaving: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> SessionResult:
    context = context_of(surgeon, progress)
    return bsd.actions.restore.restore_all(context, name, uninstalling=leaving)


def undo(surgeon: Surgeon, name: SessionName, number: int | None = None) -> dict[str, Any]:
    return as_json(bsd.actions.history.undo(context_of(surgeon), name, number))


def redact(surgeon: Surgeon, name: SessionName, calls: Sequence[CallToRedact]) -> dict[str, Any]:
    """Calls taken out of context, which only transcripts ask for; the note is that of verbs."""

    def plan(source: Transcript, fmt: TranscriptFormat, means: Means) -> tuple[Plan, Redaction]:
        return plan_redact(source, fmt, calls, means.stored)

    def note(notes: Notes, report: Report | None, answer: Redaction) -> None:
        if report is not None:
            notes.changed_several("redact", name, report, answer.entry_ids)

    number, answer = surgeon.perform(name, plan, note)
    return {**as_json(answer), "operation": number}

"""Verbs as tests ask for them: done by a surgeon that is there, answered in JSON's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bsd.actions.edit import (
    CHANGE_CONTEXT,
    EDIT,
    GET_CONTEXT,
    SET_EXTRACTABLE,
    ChangeContext,
    EditEntry,
    GetContext,
    SetExtractable,
)
from bsd.actions.list_entries import SHOW, Show
from bsd.actions.restore import (
    EXTRACT,
    RESTORE,
    RESTORE_ALL,
    UNDO,
    Extract,
    Restore,
    RestoreAll,
    Undo,
)
from bsd.actions.summary import SUMMARY, Summarize
from bsd.actions.verb import Verb, perform
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.planning import edit as editing
from bsd.planning import restore as restore_planner
from bsd.planning import view
from bsd.planning.edit import EditableEntry, Wish
from bsd.planning.plan import Means, Plan, Report
from bsd.planning.redact import CallToRedact, Redaction, plan_redact
from bsd.planning.result import SessionResult
from bsd.planning.view import EntryView, views
from bsd.sessions.notes import Notes
from bsd.sessions.session import Queries
from bsd.sessions.surgeon import Surgeon
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript


@dataclass(frozen=True)
class _Only:
    """Hands that have this surgeon for every session."""

    one: Any
    progressed: Callable[[int], None] = lambda _: None

    @property
    def layout(self) -> Layout:
        found: Layout = self.one.layout
        return found

    def surgeon(self, _: SessionName, *, writes: bool) -> Surgeon:
        found: Surgeon = self.one
        return found


def _done(
    verb: Verb[Any, Any], surgeon: Queries, name: SessionName, asked: object
) -> dict[str, Any]:
    answer: dict[str, Any] = perform(verb, _Only(surgeon), name, asked).as_json()
    return answer


def entries(queries: Queries, name: SessionName, start: int = 0) -> list[EntryView]:
    """The entries of a session from line `start` on, as they stand."""
    return queries.look(name, lambda source, fmt, _: list(views(source, fmt, start=start)))


def extraction(
    queries: Queries, name: SessionName, overrides: Mapping[str, Any] | None = None
) -> SessionResult:
    """What an extraction by hand would do now."""
    asked = Extract(dry_run=True, settings=overrides or {})
    found: SessionResult = perform(EXTRACT, _Only(queries), name, asked)
    return found


def extracted_content(queries: Queries, name: SessionName, entry: str) -> dict[str, Any]:
    """What was taken out of an entry, by key, without putting it back."""

    def ask(source: Transcript, fmt: TranscriptFormat, means: Means) -> dict[str, Any]:
        return view.extracted_content(source, fmt, entry, means.stored).as_json()

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
    return _done(GET_CONTEXT, queries, name, GetContext())


def show(queries: Queries, name: SessionName, **which: Any) -> list[dict[str, Any]]:
    """Entries, or one of them, as the command line shows them."""
    found: list[dict[str, Any]] = _done(SHOW, queries, name, Show(**which))["entries"]
    return found


def summary(layout: Layout, name: SessionName) -> dict[str, Any]:
    queries = Queries(layout, ConfigService(layout.config_file, create=False))
    return _done(SUMMARY, queries, name, Summarize())


def restore(
    surgeon: Surgeon, name: SessionName, entry: str, keys: Sequence[str] | None = None
) -> dict[str, Any]:
    asked = Restore(entry, None if keys is None else tuple(keys))
    return _done(RESTORE, surgeon, name, asked)


def set_extractable(
    surgeon: Surgeon, name: SessionName, entry: str, value: bool | int | None
) -> dict[str, Any]:
    return _done(SET_EXTRACTABLE, surgeon, name, SetExtractable(entry, value))


def change_context(
    surgeon: Surgeon, name: SessionName, action: str, targets: Sequence[Any], **how: bool
) -> dict[str, Any]:
    return _done(CHANGE_CONTEXT, surgeon, name, ChangeContext(action, targets, **how))


def edit(
    surgeon: Surgeon, name: SessionName, entry: str, wish: Wish, seen: str | None = None
) -> dict[str, Any]:
    return _done(EDIT, surgeon, name, EditEntry(entry, wish, seen))


def restore_all(
    surgeon: Surgeon,
    name: SessionName,
    *,
    leaving: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> SessionResult:
    return perform(RESTORE_ALL, _Only(surgeon, progress), name, RestoreAll(leaving))


def undo(surgeon: Surgeon, name: SessionName, number: int | None = None) -> dict[str, Any]:
    return _done(UNDO, surgeon, name, Undo(number))


def redact(surgeon: Surgeon, name: SessionName, calls: Sequence[CallToRedact]) -> dict[str, Any]:
    """Calls taken out of context, which only transcripts ask for; the note is that of verbs."""

    def plan(source: Transcript, fmt: TranscriptFormat, means: Means) -> tuple[Plan, Redaction]:
        return plan_redact(source, fmt, calls, means.stored)

    def note(notes: Notes, report: Report | None, answer: Redaction) -> None:
        if report is not None:
            notes.changed_several("redact", name, report, answer.entry_ids)

    number, answer = surgeon.perform(name, plan, note)
    return {**answer.as_json(), "operation": number}

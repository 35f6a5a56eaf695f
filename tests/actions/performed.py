"""Actions as tests call them, with answers in JSON's types; and the context of the calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import bsd.actions.checks
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
from bsd.maintenance import interrupted
from bsd.planning import edit as editing
from bsd.planning import restore as restore_planner
from bsd.planning import view
from bsd.planning.edit import EditableEntry, Wish
from bsd.planning.redact import CallToRedact, plan_redact
from bsd.planning.result import SessionResult
from bsd.planning.undo import PastOperation
from bsd.planning.view import EntryView, views
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.editor import Worth
from bsd.store.state import StateDb


@dataclass(frozen=True, kw_only=True)
class Caller(ActionContext):
    """A context that extracts as the daemon does, with checkpoints if there is a `state`."""

    state: StateDb | None = None

    def __post_init__(self) -> None:
        """Remember its own commits from one call to the next, as a child does."""
        object.__setattr__(self, "in_flight", self.in_flight or InFlight(self.layout))

    def extract(
        self,
        name: SessionName,
        *,
        by_hand: bool = False,
        overrides: Mapping[str, Any] | None = None,
        worth: Worth | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> SessionResult:
        if by_hand:
            return bsd.actions.extract.extract(self, name, settings=overrides)
        result = bsd.actions.extract.extract_due(
            self, name, self.state, settings=overrides, worth=worth, goes_on=goes_on
        )
        assert result is not None
        return result

    def recover_all(self) -> list[Recovered]:
        """Recover, as a start does, the files that an earlier process left half done."""
        inflight = self.in_flight or InFlight(self.layout)
        return interrupted.recover(self.layout, inflight, self.now, self.actor)

    def remark(self, name: SessionName) -> tuple[str, ...]:
        return bsd.actions.checks.remark(self, name)


def history_of(layout: Layout, name: SessionName) -> list[PastOperation]:
    """The stored operations of a session, the newest first."""
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))
    return list(bsd.actions.history.list_history(context, name).operations)


def entries(context: ActionContext, name: SessionName, start: int = 0) -> list[EntryView]:
    """The current entries of a session from line `start` on."""
    with context.reader(name) as opened:
        return list(views(opened.transcript, opened.format, start=start))


def extraction(
    context: ActionContext, name: SessionName, overrides: Mapping[str, Any] | None = None
) -> SessionResult:
    """The effect that an extraction by hand would have now."""
    return bsd.actions.extract.extract(context, name, dry_run=True, settings=overrides)


def extracted_content(context: ActionContext, name: SessionName, entry: str) -> dict[str, Any]:
    """The extracted values of an entry, by key, without putting them back."""
    with context.reader(name) as opened:
        found = view.extracted_content(opened.transcript, opened.format, entry, opened.store)
        return as_json(found)


def restored_copy(
    context: ActionContext, name: SessionName, write: Callable[[bytes], object]
) -> tuple[int, dict[str, str]]:
    """A session as it would be with every value restored."""
    with context.reader(name) as opened:
        return restore_planner.restored_copy(opened.transcript, opened.format, opened.store, write)


def show_entry(context: ActionContext, name: SessionName, entry: str) -> EditableEntry:
    """An entry as a person may edit it."""
    with context.reader(name) as opened:
        return editing.show_entry(opened.transcript, opened.format, entry)


def context(context: ActionContext, name: SessionName) -> dict[str, Any]:
    return as_json(bsd.actions.context_tool.get_context(context, name))


def show(context: ActionContext, name: SessionName, **which: Any) -> list[dict[str, Any]]:
    """Entries, or one of them, as the command line shows them."""
    shown = as_json(bsd.actions.show.show_entries(context, name, **which))
    found: list[dict[str, Any]] = shown["entries"]
    return found


def summary(layout: Layout, name: SessionName) -> dict[str, Any]:
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))
    return as_json(bsd.actions.summary.summarize_session(context, name))


def restore(
    caller: ActionContext, name: SessionName, entry: str, keys: Sequence[str] | None = None
) -> dict[str, Any]:
    return as_json(bsd.actions.restore.restore(caller, name, entry, keys))


def set_extractable(
    caller: ActionContext, name: SessionName, entry: str, value: bool | int | None
) -> dict[str, Any]:
    return as_json(bsd.actions.edit.set_extractable(caller, name, entry, value))


def change_context(
    caller: ActionContext, name: SessionName, action: str, targets: Sequence[Any], **how: bool
) -> dict[str, Any]:
    change = bsd.actions.context_tool.change_context
    return as_json(change(caller, name, action, targets, **how))


def edit(
    caller: ActionContext, name: SessionName, entry: str, wish: Wish, seen: str | None = None
) -> dict[str, Any]:
    return as_json(bsd.actions.edit.edit_entry(caller, name, entry, wish, seen))


def restore_all(
    caller: ActionContext,
    name: SessionName,
    *,
    leaving: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> SessionResult:
    context = replace(caller, progress=lambda done, of=None: progress(done))
    return bsd.actions.restore.restore_all(context, name, uninstalling=leaving)


def undo(caller: ActionContext, name: SessionName, number: int | None = None) -> dict[str, Any]:
    return as_json(bsd.actions.history.undo(caller, name, number))


def redact(
    caller: ActionContext, name: SessionName, calls: Sequence[CallToRedact]
) -> dict[str, Any]:
    """Remove calls from the context; only transcripts ask for this, and the note is that of
    actions.
    """

    editor = caller.editor(name)
    answer = editor.apply(
        lambda opened: plan_redact(opened.transcript, opened.format, calls, opened.store)
    )
    return {**as_json(answer), "operation": editor.operation}

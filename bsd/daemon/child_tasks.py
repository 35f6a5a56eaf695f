"""Tasks of children other than extraction: actions for interfaces, recovery, the search index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bsd.actions.context import ActionContext
from bsd.core.layout import SessionName
from bsd.daemon.child import Child
from bsd.daemon.children import Children
from bsd.maintenance.bring_back import sweep_returning
from bsd.maintenance.indexing import Due, ReadOn, find_due, read_some
from bsd.maintenance.interrupted import recover as recover_all
from bsd.maintenance.session_check import reindex as mend
from bsd.maintenance.snapshots import SnapshotScope, SnapshotTotals, take_snapshots
from bsd.sessions.commit.displaced import Recovered
from bsd.store.search import SearchIndex, use


def recover(child: Child) -> list[Recovered]:
    """Finish or undo operations in flight, deletes and restores of sessions included."""
    context = child.context("daemon")
    return recover_all(child.layout, child.in_flight, context.now, context.actor)


def reindex(child: Child, name: SessionName) -> bool:
    """Repair the index of a store if it lacks a file; raises as `session_check.reindex`."""
    return mend(child.layout, name, wait=0.0)


def find_unread(
    child: Child, after: str | None, most: int, wait: float
) -> tuple[list[Due], bool, str | None]:
    """Find sessions that the search index must read; forget deleted sessions in the index.

    Args:
        after: the agent after which the search begins; None: at the first agent.
        most: the number of sessions after which the search ends.
        wait: seconds to wait while another process uses the index.

    Returns:
        The sessions; True if deleted sessions were forgotten; the agent at which the search ended
        (None: it covered all agents).

    Raises:
        BsdError: as `search.use`.
    """
    has_words = child.config.current.search_index

    def look(index: SearchIndex) -> tuple[list[Due], bool, str | None]:
        index.follow_setting(has_words)
        due, gone, up_to = find_due(
            child.layout, index, after=after, most=most, going_on=lambda: child.progress(0)
        )
        if not gone:
            return due, False, up_to
        with index.change():
            return due, sum(map(index.forget, gone)) > 0, up_to

    return use(child.layout.search_db, look, wait=wait)


def read_words(child: Child, wanted: list[Due], seconds: float, wait: float) -> list[ReadOn]:
    """Read sessions into the search index for some time; a huge session only in part.

    If the index has enough dead words for a sweep, the last result has `dropped` set, too.

    Args:
        wanted: the sessions to read.
        seconds: the time for reading.
        wait: seconds to wait while another process uses the index.

    Raises:
        BsdError: as `search.use`.
    """

    def read(index: SearchIndex) -> list[ReadOn]:
        turns = read_some(child.layout, index, wanted, seconds)
        if turns and index.is_due_to_be_swept():
            turns[-1] = replace(turns[-1], dropped=True)
        return turns

    return use(child.layout.search_db, read, wait=wait)


def sweep_words(child: Child) -> None:
    """Remove dead words from the search index; raises as `search.use`."""

    def stopping() -> bool:
        child.progress(0)
        return False

    use(child.layout.search_db, lambda index: index.sweep(stopping))


def keep_sessions(child: Child, keep: str, *, first: bool = False) -> SnapshotTotals:
    """Copy idle sessions into the archive.

    Args:
        keep: the setting `archive_sessions`.
        first: only sessions that their program deletes by age (`SnapshotScope`).
    """

    def stopping() -> bool:
        child.progress(0)
        return False

    sweep_returning(child.layout)
    scope = SnapshotScope(first=first)
    budget = child.budget(0.0)
    return take_snapshots(child.layout, keep, budget, scope=scope, stopping=stopping)


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ChildExecutor:
    """Calls an action in a child (`actions.context.Executor`)."""

    children: Children

    def __call__(
        self,
        context: ActionContext,
        action: Callable[..., _T],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> _T:
        """Call `action` with a context of the child; raises as `action` and as `Children.call`."""
        session = args[0] if args and isinstance(args[0], SessionName) else None
        answer: _T = self.children.call(
            run_action,
            action,
            args,
            dict(kwargs),
            context.actor,
            context.budget.wait,
            session=session,
            only_reads=not changes,
            handlers={"cleaned": context.cleaned, "early_answer": context.early_answer},
        )
        return answer


def run_action(
    child: Child,
    action: Callable[..., _T],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    actor: str,
    wait: float,
) -> _T:
    """Call an action for an interface; `wait`: seconds to wait for a session in use."""
    answer: _T = action(child.context(actor, wait), *args, **kwargs)
    return answer

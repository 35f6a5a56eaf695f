"""What doors do with workspaces: one root, the rules of the settings, and a line in the audit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsd.foundation.ages import look, steady
from bsd.foundation.audit import AuditLog
from bsd.foundation.errors import NotFound
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger, traced
from bsd.foundation.spelling import MINUTE, lifetime_seconds
from bsd.workspaces.execution import ExecutionResult, execute
from bsd.workspaces.listing import SessionInfo, describe_session, list_sessions
from bsd.workspaces.metadata import SessionMetadata
from bsd.workspaces.prune import Progress, PruneResult, prune_sessions
from bsd.workspaces.repair import Repair, repair_all, repair_session_metadata
from bsd.workspaces.sandbox import SessionSandbox, create_session_sandbox, touch_session

if TYPE_CHECKING:  # start-up of a command stays light
    from bsd.foundation.settings import Settings

_log = get_logger("workspaces")


@dataclass(frozen=True, slots=True)
class Rules:
    """Which workspaces go; None for what does not count (as with `prune_sessions`)."""

    older_than_hours: float | None = 24.0
    max_count: int | None = None
    max_total_bytes: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """As the settings say, in which 0 is no limit."""
        age = lifetime_seconds(settings.workspace_max_age, minimum=MINUTE)
        return cls(
            None if age is None else age / 3600,
            settings.workspace_max_count or None,
            settings.workspace_max_bytes or None,
        )


@traced(_log)
@dataclass(frozen=True, slots=True)
class Caretaker:
    """Looks after one workspace root for `actor`.

    Without a `layout` there is no audit, and the clock is believed.
    """

    root: Path | None
    layout: Layout | None = None
    rules: Rules = Rules()
    actor: str = "cli"
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = steady

    @property
    def place(self) -> Path:
        """The root; raises NotFound if none is configured."""
        if self.root is None:
            raise NotFound(
                "no workspace root is configured",
                hint="set workspace_root in bsd.toml, or BRAINSURGEON_WORKSPACE_ROOT",
            )
        return self.root

    def sessions(self, *, sizes: bool = False) -> list[SessionInfo]:
        return list_sessions(self.place, sizes=sizes, clock=self.clock)

    def describe(self, session_id: str) -> SessionInfo:
        return describe_session(session_id, self.place, clock=self.clock)

    def create(self, session_id: str | None = None) -> SessionSandbox:
        made = create_session_sandbox(session_id, self.place, clock=self.clock)
        if made.created:
            self._audit("workspace_create", made.session_id)
        return made

    def run(self, session_id: str, argv: Sequence[str], **how: Any) -> ExecutionResult:
        done = execute(session_id, argv, self.place, clock=self.clock, **how)
        self._audit(
            "workspace_run",
            session_id,
            program=argv[0],
            exit_code=done.exit_code,
            error=done.error,
            isolated=done.isolated,
            user=done.user,
        )
        return done

    def touch(self, session_id: str) -> SessionMetadata | None:
        return touch_session(session_id, self.place, clock=self.clock)

    def prune(
        self,
        rules: Rules | None = None,
        *,
        dry_run: bool = False,
        progress: Progress = lambda _done, _all: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> PruneResult:
        """Prune by `rules`, or by those of the settings."""
        rules = rules or self.rules
        now = self._now_for(rules.older_than_hours, keep=not dry_run)
        done = prune_sessions(
            rules.older_than_hours,
            self.place,
            dry_run,
            max_count=rules.max_count,
            max_total_bytes=rules.max_total_bytes,
            progress=progress,
            stopping=stopping,
            clock=lambda: now,
        )
        if not dry_run and (done.deleted_sessions or done.errors or done.leftovers):
            self._audit(
                "workspace_prune",
                None,
                workspaces_deleted=len(done.deleted_sessions),
                workspaces_skipped=len(done.skipped_sessions),
                errors=len(done.errors),
                bytes_freed=done.reclaimed_bytes,
                sessions=done.deleted_sessions,
            )
        return done

    def repair(self, session_id: str | None = None, *, dry_run: bool = False) -> list[Repair]:
        """Repair one, or all that need it."""
        if session_id is None:
            done = repair_all(self.place, dry_run, clock=self.clock)
        else:
            done = [repair_session_metadata(session_id, self.place, dry_run, clock=self.clock)]
        for one in done:
            if one.repaired and not dry_run:
                self._audit("workspace_repair", one.session_id, reason=one.reason)
        return done

    def _now_for(self, hours: float | None, *, keep: bool) -> float:
        """The time by which workspaces count as unused: the clock may have been put forward."""
        if self.layout is None or hours is None:
            return self.clock()
        return look(self.layout, self.clock, self.steady, keep=keep).now_for(hours * 3600)

    def _audit(self, action: str, session_id: str | None, **what: Any) -> None:
        if self.layout is not None:
            AuditLog(self.layout.audit_file, self.clock).record(
                actor=self.actor, action=action, session_id=session_id, **what
            )

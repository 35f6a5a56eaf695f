"""Finishes calls of `forget` that were killed, by their crash journals."""

from __future__ import annotations

from dataclasses import replace

import structlog

from bsd.core.audit import AuditLog
from bsd.core.errors import BsdError, Busy, os_problem
from bsd.core.layout import Layout
from bsd.maintenance.crash_journal import forget_journals
from bsd.maintenance.forget import Forget
from bsd.sessions.idle import RetryBudget

_log = structlog.stdlib.get_logger(module="archive")


def finish_forgetting(layout: Layout, *, actor: str, budget: RetryBudget | None = None) -> int:
    """Finish killed calls. If the session is busy, the call waits for a later run.

    A journal that is not bsd's own or cannot be read is skipped.

    Returns:
        The number of calls that cannot be finished; the log says why.
    """
    failed = 0
    forget = Forget(layout, actor=actor, budget=replace(budget or RetryBudget(), wait=0.0))
    for path, journal in forget_journals(layout):
        if isinstance(journal, BsdError):
            _log.warning("A journal of forgetting is ignored", problem=journal.message)
            AuditLog(layout.audit_file).refused(path, journal.message, actor)
            continue
        session = journal.session
        try:
            forget.finish(journal)
            _log.info(f"Finished the interrupted forgetting of {session}", entry=journal.entry)
        except Busy as busy:
            _log.debug("Forgetting waits", session=str(session), why=busy.message)
        except (BsdError, OSError) as error:
            problem = os_problem(error, f"forgetting {session}").message
            _log.warning("Forgetting cannot be finished", problem=problem)
            failed += 1
    return failed

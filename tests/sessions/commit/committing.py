"""The work of the children: a commit of a real plan, by `commit` itself or through the editor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bsd.core.config import PruningConfig
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.planning.extract import plan_extraction
from bsd.planning.redact import CallToRedact, RedactionKind
from bsd.sessions.commit.displaced import Access, Recovered
from bsd.sessions.commit.exchange import Step, no_step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.protocol import CommitOutcome, commit
from bsd.sessions.commit.recovery import recover
from bsd.sessions.idle import RetryBudget
from bsd.store.originals import SessionStore
from bsd.transcripts.agents.format import NotOurs
from bsd.transcripts.agents.openclaw.format import detect
from bsd.transcripts.agents.openclaw.lock import SessionLock
from bsd.transcripts.change import Change
from bsd.transcripts.reader import TranscriptFile
from tests.actions import performed
from tests.actions.performed import Caller

SETTINGS: dict[str, Any] = {"keep_recent": 0, "min_value_length": 500}
NAME = SessionName("main", "chat")
CALLS = ("call2", "call4")


def commit_extraction(
    root: Path,
    after_step: Step = no_step,
    now_ns: Callable[[], int] = time.time_ns,
) -> CommitOutcome:
    """Extract without the editor: plan, store the originals, commit. The session is idle."""
    layout = Layout(root)
    store = SessionStore(layout, NAME)
    path = layout.session_file(NAME)
    with own_lock(layout, NAME, 0.0):
        planned_at = now_ns()
        with TranscriptFile(path) as source:
            fmt = detect(each.raw for each in source.lines())
            assert not isinstance(fmt, NotOurs)
            config = PruningConfig(**SETTINGS)
            plan = plan_extraction(source, fmt, config, planned_at / 1e9, store)

        def keep() -> None:
            with TranscriptFile(path) as source:
                store.add(plan.keeps, source)

        return commit(
            Change(path, plan.planned_on, plan.edits, NAME, planned_at),
            inflight=InFlight(layout),
            session_lock=SessionLock(path, 0.0, name=NAME),
            still_idle=lambda: None,
            keep=keep,
            after_step=after_step,
            now_ns=now_ns,
        )


def recover_all(
    root: Path,
    seconds_later: float = 0.0,
    after_step: Step = no_step,
) -> list[Recovered]:
    """Recover as the daemon does when it starts, with a clock that is `seconds_later` ahead."""
    layout = Layout(root)
    return recover(
        InFlight(layout),
        replace(Access.to(layout), still_idle=lambda *_: None),
        now_ns=lambda: time.time_ns() + int(seconds_later * 1e9),
        after_step=after_step,
    )


def operate(act: str, root: Path, after_step: Step) -> str:
    """Change the session through the editor, whose commits report their steps too.

    Extract or restore everything, leave bsd, remove the lines of two calls, or undo the last
    change.
    """
    layout = Layout(root)
    config = ConfigService(layout.config_file)
    config.update(SETTINGS)
    caller = Caller(layout=layout, config=config, actor="test", budget=RetryBudget(wait=0.0))
    watched = partial(commit, after_step=after_step)
    with patch("bsd.sessions.editor.commit", watched):
        if act == "redact":
            try:
                told = performed.redact(
                    caller,
                    NAME,
                    [CallToRedact("read", RedactionKind.CONSUMED, one) for one in CALLS],
                )
            except Busy as busy:  # in this world
                return busy.message
            return "redacted" if len(told["redacted"]) == len(CALLS) else str(told["left"])
        if act == "undo":
            return "undone" if performed.undo(caller, NAME)["entries"] else "nothing"
        result = (
            caller.extract(NAME)
            if act == "extract"
            else performed.restore_all(caller, NAME, leaving=act == "leave")
        )
    return result.reason or str(result.status)

"""Scenes for an ordinary user; run as that user: `python -m tests.sessions.commit.ordinary WHAT
WHERE`.

Each function gets a directory with a root in it, and returns bsd's answers and the faults found.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.sessions.commit.protocol import commit
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.sessions.commit.committing import NAME, SETTINGS
from tests.sessions.commit.crashed import session
from tests.sessions.commit.ledger import Ledger
from tests.sessions.commit.oracle import Oracle

Answer = dict[str, Any]


def _surgeon(root: Path) -> Caller:
    layout = Layout(root)
    config = ConfigService(layout.config_file)
    config.update({**SETTINGS, "keep_after_restore_seconds": 0})
    return Caller(layout=layout, config=config, actor="test", budget=RetryBudget(wait=0.0))


def _path(root: Path, name: SessionName = NAME) -> Path:
    return root / "agents" / name.agent / "sessions" / f"{name.session}.jsonl"


def _ask(do: Callable[[], Any]) -> Answer:
    """The answer of bsd, as the command line or the API would give it."""
    try:
        result = do()
    except BsdError as error:
        return {"error": type(error).__name__, "reason": error.message, "hint": error.hint}
    return {"status": str(result.status), "reason": result.reason, "hint": result.hint}


def _lost(root: Path) -> list[str]:
    path = _path(root)
    return Oracle(root, path, session(), Ledger(root.parent / "ledger")).judge()


def _come_back(root: Path) -> list[str]:
    """Extract and restore after the obstacle is gone; return the differences."""
    caller, path = _surgeon(root), _path(root)
    problems = []
    set_idle(path)
    if (answer := _ask(partial(caller.extract, NAME)))["status"] not in ("extracted", "unchanged"):
        problems.append(f"not extracted afterwards: {answer}")
    set_idle(path)
    if (answer := _ask(partial(performed.restore_all, caller, NAME)))["status"] != "restored":
        problems.append(f"not restored afterwards: {answer}")
    problems += _lost(root)
    if b"[[extracted-" in path.read_bytes():
        problems.append("values are still away")
    return problems


def full_disk(top: Path) -> Answer:
    """Disks with increasing room: each fails at a later stage, until one is large enough."""
    root, filler = top / "root", top / "filler"
    answers, problems = [], []
    caller = _surgeon(root)
    performed.extraction(caller, NAME)
    for what in (caller.extract, partial(performed.restore_all, caller)):
        for room in range(0, 200 << 10, 12 << 10):
            set_idle(_path(root))
            _fill(filler, room)
            before = _path(root).read_bytes()
            answer = _ask(partial(what, NAME))
            answers.append(answer)
            if answer.get("status") in ("extracted", "restored"):
                problems += [f"{room} left: {problem}" for problem in _lost(root)]
                filler.unlink()
                break
            if _path(root).read_bytes() != before:
                problems.append(f"{room} left: changed, although it failed: {answer}")
            problems += [f"{room} left: {problem}" for problem in _lost(root)]
            problems += [f"left over: {file}" for file in root.glob("extracted/*/*.tmp")]
            filler.unlink()
    caller.recover()
    return {"answers": answers, "problems": problems + _come_back(root)}


def _fill(filler: Path, room: int) -> None:
    """Fill the disk, then free `room` bytes."""
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    size = 0
    try:
        for block in (1 << 16, 1 << 12):
            try:
                while True:
                    size += os.write(fd, b"f" * block)
            except OSError:
                continue
        os.ftruncate(fd, max(0, size - room))
    finally:
        os.close(fd)


def _refused(top: Path, prepare: Callable[[Path], None], mend: Callable[[Path], None]) -> Answer:
    root = top / "root"
    caller = _surgeon(root)
    prepare(root)
    answer = _ask(partial(caller.extract, NAME))
    problems = _lost(root)
    if _path(root).read_bytes() != session():
        problems.append("the session was changed")
    mend(root)
    return {"answers": [answer], "problems": problems + _come_back(root)}


def read_only_store(top: Path) -> Answer:
    def prepare(root: Path) -> None:
        (root / "extracted").mkdir(mode=0o500)

    return _refused(top, prepare, lambda root: (root / "extracted").chmod(0o700))


def read_only_sessions(top: Path) -> Answer:
    directory = _path(top / "root").parent
    return _refused(top, lambda _: directory.chmod(0o500), lambda _: directory.chmod(0o700))


def unreadable_session(top: Path) -> Answer:
    path = _path(top / "root")
    root = top / "root"
    caller = _surgeon(root)
    path.chmod(0)
    answer = _ask(partial(caller.extract, NAME))
    path.chmod(0o600)
    return {"answers": [answer], "problems": _lost(root) + _come_back(root)}


def just_extract(top: Path) -> Answer:
    """Extract, without a judgement; the caller checks the session."""
    root = top / "root"
    answer = _ask(partial(_surgeon(root).extract, NAME))
    return {"answers": [answer], "problems": _lost(root)}


def extract_and_restore(top: Path) -> Answer:
    root = top / "root"
    answer = _ask(partial(_surgeon(root).extract, NAME))
    return {"answers": [answer], "problems": _lost(root) + _come_back(root)}


def vanished(top: Path) -> Answer:
    """Delete the session at each step of the commit in turn."""
    root = top / "root"
    answers, problems = [], []
    for doomed in ("checked", "kept", "recorded", "locked", "verified"):

        def after_step(step: str, doomed: str = doomed) -> None:
            if step == doomed:
                _path(root).unlink()

        with patch("bsd.sessions.editor.commit", partial(commit, after_step=after_step)):
            answers.append(_ask(partial(_surgeon(root).extract, NAME)))
        if _path(root).exists():
            problems.append(f"{doomed}: it is back")
        _path(root).write_bytes(session())
        set_idle(_path(root))
    return {"answers": answers, "problems": problems + _come_back(root)}


def links(top: Path) -> Answer:
    """Links out of the root, at every place where a link could mislead a reader or writer."""
    root, outside = top / "root", top / "outside"
    outside.mkdir()
    answers, problems = [], []
    for link, name in (
        (root / "agents" / "linked", "linked/chat"),
        (root / "agents" / "half" / "sessions", "half/chat"),
        (root / "agents" / "main" / "sessions" / "linked.jsonl", "main/linked"),
        (root / "extracted", "main/chat"),
        (root / "extracted" / "main_chat", "main/chat"),
    ):
        link.parent.mkdir(parents=True, exist_ok=True)
        goal = outside / "sessions" if link.name == "linked" else outside
        goal.mkdir(exist_ok=True)
        for directory in (goal, outside, goal / "sessions"):
            directory.mkdir(exist_ok=True)
            (directory / "chat.jsonl").write_bytes(session())
            set_idle(directory / "chat.jsonl")
        link.symlink_to(outside / "chat.jsonl" if link.suffix else goal)
        before = _everything(outside)
        answer = _ask(partial(_surgeon(root).extract, SessionName.parse(name)))
        answers.append({"link": str(link.relative_to(root)), **answer})
        if _everything(outside) != before:
            problems.append(f"{link.relative_to(root)}: something was written outside")
        link.unlink()
    return {"answers": answers, "problems": problems + _come_back(root)}


def _everything(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


SCENES: dict[str, Callable[[Path], Answer]] = {
    scene.__name__: scene
    for scene in (
        *(full_disk, read_only_store, read_only_sessions, unreadable_session),
        *(just_extract, extract_and_restore, vanished, links),
    )
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCENES[sys.argv[1]](Path(sys.argv[2]))))

"""A push that is killed at any step; what it left is consistent, and the next one completes it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bsd.core.layout import SessionName
from bsd.maintenance.forget import Forget
from bsd.store.pack import PACK
from tests.fleet.hosts import MadeHost
from tests.fleet.test_push import check
from tests.sessions.commit.disk_calls import was_killed


def _prepare(host: MadeHost) -> None:
    """Leave something of each kind for the next push: to upload, to delete, to make thin."""
    for session in ("main/s1", "main/s2"):
        host.add(session)
    host.push()
    host.layout.session_file(SessionName("main", "s1")).unlink()
    Forget(host.layout, budget=host.caller.budget).session(SessionName("main", "s1"))
    host.add("main/s3")
    host.add("main/s4", extracted=False)


def _push_dying(host: MadeHost, step: int) -> None:
    left = [step]

    def after_step(_: str) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    host.push(after_step=after_step)


def _listed_is_there(host: MadeHost) -> None:
    """Check that the bucket has all objects that the newest manifests name."""
    remote, objects = host.remote(), host.objects()
    assert remote.broken == ()
    needed = {part.key for each in remote.files.values() for part in each.file.parts}
    # What was forgotten may be deleted before the next manifest is there, but not before this one.
    assert needed <= objects.keys()


def _each_step(host: MadeHost, top: Path, before: Callable[[MadeHost], None]) -> int:
    """Kill a push after each of its steps, each time from the same state; return their number."""
    before(host)
    saved = top / "saved"
    for name in ("here", "bucket"):
        shutil.copytree(top / name, saved / name, copy_function=shutil.copy2)
    step = 1
    while was_killed(partial(_push_dying, host, step)):
        _listed_is_there(host)
        host.push()
        check(host)
        again = host.push()
        assert (again.files, again.removed, again.waiting) == (0, 0, 0)
        for name in ("here", "bucket"):
            shutil.rmtree(top / name)
            shutil.copytree(saved / name, top / name, copy_function=shutil.copy2)
        step += 1
    check(host)
    return step - 1


def test_a_push_that_is_killed_is_continued(tmp_path: Path) -> None:
    host = MadeHost.of(tmp_path, uploads_at_once=1)
    assert _each_step(host, tmp_path, _prepare) >= 12


def test_a_first_push_that_is_killed_leaves_no_object_of_what_was_forgotten(
    tmp_path: Path,
) -> None:
    host = MadeHost.of(tmp_path, uploads_at_once=1)
    host.add(words="forgettable")
    assert was_killed(partial(_push_dying, host, 2))  # uploaded, and not noted
    assert any("/objects/" in key for key in host.objects())
    host.layout.session_file(SessionName("main", "s1")).unlink()
    Forget(host.layout, budget=host.caller.budget).session(SessionName("main", "s1"))
    host.push()
    assert not any("/objects/" in key for key in host.objects())
    assert not list(host.layout.archive.rglob(f"*{PACK}"))

"""A session whose content goes to the archive, for the archive's tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bsd.core.config import PruningConfig
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.retention import CleanedAll, RetentionRun
from bsd.store.archive import SessionArchive
from bsd.store.pack import Pack, Packed
from tests.actions import performed
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.session_files import LONG, NAME

HOUR = 3600.0
DAY = 24 * HOUR
ON = PruningConfig()
OFF = PruningConfig(archive=False)


def age(layout: Layout, name: SessionName = NAME, hours: float = 25) -> None:
    """Give all stored files of a session this age."""
    then = time.time() - hours * HOUR
    for file in layout.store_dir(name).glob("[0-9]*.json"):
        os.utime(file, (then, then))


def clean(layout: Layout, config: PruningConfig = ON, *, forget: bool = False) -> CleanedAll:
    return RetentionRun(layout, actor="cli").clean_all(config, forget=forget)


def packs(layout: Layout, name: SessionName = NAME) -> list[Path]:
    return SessionArchive(layout.archive_dir(name)).packs()


def kept(layout: Layout, name: SessionName = NAME) -> list[Packed]:
    """Return the content of a session's packs, in their order."""
    found = []
    for path in packs(layout, name):
        with Pack(path) as pack:
            found += list(pack)
    return found


def everything_back(caller: Caller, name: SessionName = NAME) -> None:
    caller.config.update({"enabled": False})
    result = performed.restore_all(caller, name, leaving=True)
    assert result.unavailable == {}
    set_idle(caller.layout.session_file(name))


def long_lines(session: bytes) -> list[bytes]:
    return [line for line in session.splitlines(keepends=True) if LONG.encode() in line]

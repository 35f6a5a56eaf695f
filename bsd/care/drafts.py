"""What people wrote in an editor and could not be applied: kept for them, but not for ever."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bsd.foundation.ages import Ages
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout
from bsd.foundation.logs import get_logger

_log = get_logger("retention")


def forget_drafts(layout: Layout, lifetime: float | None, ages: Ages) -> int:
    """Delete drafts that nobody has touched for `lifetime` seconds (None: keep all); how many."""
    gone = 0
    if lifetime is None or ages.held_for(lifetime):
        return 0
    try:
        edits = layout.refuse_outside(layout.edits)
    except BsdError as problem:
        _log.warning("[RETENTION] Not deleted", where=str(layout.edits), problem=problem.message)
        return 0
    for directory in _drafts(edits):
        try:
            touched = [
                entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(directory)
            ]
            newest = max(touched, default=directory.lstat().st_mtime)
            if ages.age(newest, lifetime) > lifetime:
                shutil.rmtree(directory)
                gone += 1
        except OSError as error:
            _log.warning("[RETENTION] Not deleted", where=str(directory), problem=str(error))
    return gone


def _drafts(edits: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(edits) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)

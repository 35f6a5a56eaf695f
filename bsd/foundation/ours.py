"""Whether what lies on disk is bsd's own: made by whoever may, and nobody else's to change.

A record or a journal tells bsd what to do to a session. In a directory that others may write to
they can put one there, too; such a one is believed in nothing, and is named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def makers(root: Path) -> frozenset[int]:
    """Who may have made what is bsd's own: who runs it, root, and whom the root belongs to."""
    found = {os.geteuid(), 0}
    with suppress(OSError):  # it is not there yet
        found.add(root.stat().st_uid)
    return frozenset(found)


def why_not_our_file(found: os.stat_result, makers: Collection[int]) -> str | None:
    """What keeps bsd from believing a file, by what lstat says of it; None if nothing does."""
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    if found.st_nlink > 1:  # one of ours has one name; another may have been given it by anybody
        return f"it has {found.st_nlink} names"
    return _why_not_ours(found, makers)


def why_not_our_directory(found: os.stat_result, makers: Collection[int]) -> str | None:
    """The same of a directory, and of what lies in it."""
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    return _why_not_ours(found, makers)


def _why_not_ours(found: os.stat_result, makers: Collection[int]) -> str | None:
    if found.st_uid not in makers:
        return f"it belongs to uid {found.st_uid}, not to bsd"
    if found.st_mode & _OTHERS_MAY_WRITE:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return None

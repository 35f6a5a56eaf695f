"""The absolute paths that a call of a function of `os` names, for tests that wrap them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def path_of(paths: tuple[Any, ...], more: dict[str, Any], position: int = 0) -> Path:
    """Return the path at a position among a call's arguments.

    A relative path is relative to the directory that the call's `dir_fd`, `src_dir_fd` (position 0)
    or `dst_dir_fd` (position 1) names, if any.
    """
    side = ("src_dir_fd", "dst_dir_fd")[position]
    descriptor = more.get("dir_fd", more.get(side))
    top = Path.cwd() if descriptor is None else Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return Path(os.path.normpath(top / os.fsdecode(paths[position])))

"""Tells whether sessions of a source can be exchanged from this root, and the remedy if not."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core import filesystem
from bsd.core.layout import Layout
from bsd.core.sources import Source

# Files in flight lie in the root, since bsd puts no files into other programs' directories. The
# kernel exchanges files within one mount only. A unit's ReadWritePaths makes each path that it
# names a mount of its own, even on one file system.
_CGROUPS = Path("/proc/self/cgroup")
_UNIT = re.compile(r"/system\.slice/(?:.*/)?([^/]+\.service)$", re.MULTILINE)
# A unit should not open so much for writing: `/`, `/home`.
_LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Unreached:
    """Why the sessions of a source cannot be exchanged, and the remedy."""

    why: str
    remedy: str


def unreached(layout: Layout, source: Source) -> Unreached | None:
    """Return why sessions in a source cannot be exchanged; None if no obstacle is known.

    Changes nothing. Also None if the source does not exist.
    """
    try:
        _look(layout, source.path)
        if source.archived_in is not None:
            _look(layout, source.archived_in)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A directory may be closed only by its mode while those below it are open.
        if error.errno == errno.EACCES:
            if not _is_read_only(source.path):
                return None
            error = OSError(errno.EROFS, os.strerror(errno.EROFS))
        message = f"sessions of {source.name} cannot be exchanged in {source.path}"
        return Unreached(f"{message}: {error.strerror}", remedy(layout, source))
    return None


def remedy(layout: Layout, source: Source) -> str:
    """Return how to bring a source and the root onto one mount, by the cause that parts them."""
    root, there = os.path.realpath(layout.root), os.path.realpath(source.path)
    with suppress(OSError):
        if os.stat(root).st_dev != os.stat(there).st_dev:
            return (
                f"put bsd's root on the file system of {there}: files are exchanged only within one"
            )
    common = os.path.commonpath([root, there])
    unit = _unit()
    if len(Path(common).parts) < _LEAST_STEPS:
        return f"put bsd's root beside {there}, below one path that is mounted as a whole"
    if unit is None:
        return f"mount {common} as a whole: root and source must lie on one mount"
    path = common.replace("%", "%%")
    path = f'"{path}"' if re.search(r"\s", path) else path
    return (
        f"`systemctl edit {unit}`: [Service] ReadWritePaths= ReadWritePaths={path}, each on a line "
        f"of its own, then `systemctl restart {unit}`: each path in ReadWritePaths becomes a "
        "mount, and root and source must lie on one"
    )


def source_around(layout: Layout, directory: Path) -> Source | None:
    """Return the source that contains a directory of sessions, or None."""
    real = Path(os.path.realpath(directory))
    for source in layout.sources:
        if any(real.is_relative_to(os.path.realpath(top)) for top in _tops(source)):
            return source
    return None


def _tops(source: Source) -> Iterator[Path]:
    yield source.path
    if source.archived_in is not None:
        yield source.archived_in


def _look(layout: Layout, directory: Path) -> None:
    """Raise OSError unless a file in flight in the root could be renamed into `directory`."""
    places = (layout.inflight, layout.own, layout.root)
    place = next((each for each in places if each.is_dir()), layout.root)
    filesystem.refuse_unless_reached(place / f"{secrets.token_hex(8)}.probe", directory)


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _unit() -> str | None:
    """Return the system unit that bsd runs in; None if it runs in none."""
    try:
        found = _UNIT.search(_CGROUPS.read_text(encoding="utf-8", errors="replace"))
    except OSError:  # not Linux
        return None
    return found[1] if found else None

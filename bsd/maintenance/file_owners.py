"""Files of bsd in a root that do not belong to the root's owner.

Older versions, run as the superuser, left files in a root that the owner cannot use. Only the
superuser can give them back. It follows no links, because the owner can rename files and make links
in these directories.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bsd.core.layout import Layout
from bsd.transcripts.agents.programs import claims_directory, program_of

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {stat.S_IFDIR, stat.S_IFREG}  # the next daemon replaces a socket that is left over
_STATE = (".local", "state")  # both directories may have been made for the claims
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def wrongly_owned(root: Path, environ: Mapping[str, str]) -> list[tuple[Path, int]]:
    """Return the files of bsd in a root, and its claims of sources, that have another owner.

    The number with each path is the owner's uid. If a directory cannot be read, only its own owner
    is checked. Agents may run as users of their own, so in the directories of agents only files of
    the superuser count.
    """
    owner, agents = root.stat().st_uid, Path(os.path.realpath(root), "agents")
    found = ((one.path, one.status.st_uid) for one in _all(root, environ))
    return [
        (path, uid)
        for path, uid in found
        if uid != owner and (uid == 0 or not path.is_relative_to(agents))
    ]


def give_back(root: Path, environ: Mapping[str, str], uid: int, gid: int) -> int:
    """As the superuser, give the superuser's files among those of bsd to a user.

    Files with several hard links stay as they are, because the other names may lie anywhere.

    Args:
        environ: the user's environment.

    Returns:
        The number of files that changed their owner.

    Raises:
        OSError.
    """
    of_root = (found for found in _all(root, environ) if found.status.st_uid == 0)
    return sum(_give(found, uid, gid) for found in of_root)


class _OwnedFile(NamedTuple):
    path: Path
    name: str  # relative to `directory`
    directory: int  # an open descriptor
    status: os.stat_result


def _all(root: Path, environ: Mapping[str, str]) -> Iterator[_OwnedFile]:
    yield from _walk(root, partial(_of_root, root))
    claims = claims_directory(environ)
    base = claims.parents[1]  # where programs keep state: ~/.local/state
    top = base.parents[1] if base.parts[-2:] == _STATE else base
    kept = claims.parent.relative_to(top).parts
    yield from _walk(top, lambda names: names == kept[: len(names)] or names[: len(kept)] == kept)


def _walk(top: Path, ours: Callable[[tuple[str, ...]], bool]) -> Iterator[_OwnedFile]:
    """Yield bsd's files below a directory, chosen by name; follows no links, enters no mounts."""
    real = os.path.realpath(top)
    if not os.path.isdir(real) or not os.access(real, os.R_OK | os.X_OK):
        return
    for where, directories, files, descriptor in os.fwalk(real):
        above = Path(where).relative_to(real).parts
        device = os.fstat(descriptor).st_dev
        directories[:] = [name for name in sorted(directories) if ours((*above, name))]
        for name in (*directories, *(file for file in sorted(files) if ours((*above, file)))):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if found.st_dev == device and stat.S_IFMT(found.st_mode) in _KINDS:
                    yield _OwnedFile(Path(where, name), name, descriptor, found)
                elif name in directories:
                    directories.remove(name)


def _of_root(root: Path, names: tuple[str, ...]) -> bool:
    """Return True if bsd creates files with this path below a root."""
    match names:
        case (".brainsurgeon" | "extracted" | "trash" | "archive", *_):
            return True
        case ("logs" | "memory",) | ("agents",) | ("agents", _) | ("agents", _, "sessions"):
            return True
        case ("logs", name):
            return name.startswith("brainsurgeon.log")
        case ("memory", name):
            return name.startswith("facts.db")
        case ("agents", _, ".brainsurgeon", *_) | ("agents", _, "sessions", ".brainsurgeon", *_):
            return True
        case ("agents", agent, "sessions", name):
            return program_of(Layout(root), agent).is_written_by_us(name)
    return False


def _give(found: _OwnedFile, uid: int, gid: int) -> bool:
    """Change a file's owner if it is still the same file and has no other hard link."""
    flags = _DIRECTORY if stat.S_ISDIR(found.status.st_mode) else _FILE
    try:
        descriptor = os.open(found.name, flags, dir_fd=found.directory)
    except OSError:  # deleted, or replaced by a link
        return False
    try:
        now = os.fstat(descriptor)
        if not os.path.samestat(now, found.status) or now.st_uid != 0:
            return False
        if stat.S_ISREG(now.st_mode) and now.st_nlink != 1:
            return False
        os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
    return True

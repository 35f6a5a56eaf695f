"""Gives up root's rights, for good, when root calls bsd on another user's root.

The owner could not use files that root makes there: store, trash, settings, locks. And root must
not write to a directory where another user can rename files and make links. So the process becomes
the owner before it opens any file; only files that are already open, such as a terminal or a pipe,
stay open.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import Forbidden

_ROOT_USER = 0
# Directories of a user's own files; the owner has no use for root's.
_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class FileOwner:
    """A user other than root; in containers, many have neither name nor home."""

    uid: int
    gid: int
    name: str | None
    home: Path

    @classmethod
    def of(cls, found: os.stat_result) -> FileOwner:
        """Return the owner of a file, with the user's own group, as after a login."""
        try:
            known = pwd.getpwuid(found.st_uid)
        except KeyError:
            return cls(found.st_uid, found.st_gid, None, Path("/"))
        return cls(known.pw_uid, known.pw_gid, known.pw_name, Path(known.pw_dir))

    def __str__(self) -> str:
        return self.name or f"user {self.uid}"

    @property
    def command(self) -> str:
        """The prefix that makes a shell command run as this user."""
        return f"sudo -u {self.name or f'#{self.uid}'}"


def owner_for_root(root: Path) -> FileOwner | None:
    """Return the user that root must become to work on `root`; None if root may stay root.

    Args:
        root: a path that need not exist.

    Raises:
        Forbidden: a link on the way to it belongs to another user than its owner.
    """
    if os.geteuid() != _ROOT_USER:
        return None
    found = _nearest(root)
    for path in (*reversed(root.parents), root):
        if (link := _link(path)) is not None and link.st_uid not in {_ROOT_USER, found.st_uid}:
            raise Forbidden(
                f"{path} is a link of user {link.st_uid}, to a directory of user {found.st_uid}",
                hint="name the directory itself with --root, as the user who owns it",
            )
    return None if found.st_uid == _ROOT_USER else FileOwner.of(found)


def become(owner: FileOwner, root: Path, environ: MutableMapping[str, str]) -> None:
    """Give up root's rights for those of the owner of `root`; this cannot be reversed.

    Args:
        environ: is changed to the owner's environment.

    Raises:
        Forbidden: the change is not possible, or the owner could not read this program.
    """
    hint = f"`{owner.command} bsd …`; in a container: --user {owner.uid}:{owner.gid}"
    program = _files_of_the_program()
    try:
        with _for_a_moment(owner):
            unreadable = next((file for file in program if not _is_readable(file)), None)
        if unreadable is None:
            _take_groups(owner)
            os.setgid(owner.gid)
            os.setuid(owner.uid)
    except OSError as error:
        message = f"{root} belongs to {owner}, and root cannot become that user: {error.strerror}"
        raise Forbidden(message, hint=hint) from error
    if unreadable is not None:
        raise Forbidden(
            f"{root} belongs to {owner}, who may not read the program itself: {unreadable}",
            hint="install bsd where every user may read it: from its package, or below /opt",
        )
    theirs = environment_of(owner, environ)
    environ.clear()
    environ.update(theirs)


def _nearest(path: Path) -> os.stat_result:
    """Return the status of the path, or of the nearest directory above it that exists."""
    for each in (path, *path.parents):
        try:
            return os.stat(each)
        except OSError:
            continue
    return os.stat("/")


def _link(path: Path) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISLNK(found.st_mode) else None


def _take_groups(owner: FileOwner) -> None:
    if owner.name is None:
        os.setgroups([owner.gid])
    else:
        os.initgroups(owner.name, owner.gid)


@contextmanager
def _for_a_moment(owner: FileOwner) -> Iterator[None]:
    """Act as the owner while the block runs, keeping a way back to root; raises OSError."""
    groups, group = os.getgroups(), os.getegid()
    try:
        _take_groups(owner)
        os.setegid(owner.gid)
        os.seteuid(owner.uid)
        yield
    finally:
        os.seteuid(_ROOT_USER)
        os.setegid(group)
        os.setgroups(groups)


def _files_of_the_program() -> list[str]:
    """Return the loaded files of the program; modules that are loaded later lie beside them."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [sys.executable, *(file for file in files if file is not None and os.path.exists(file))]


def _is_readable(file: str) -> bool:
    return os.access(file, os.R_OK, effective_ids=os.access in os.supports_effective_ids)


def environment_of(owner: FileOwner, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the owner; root's own directories are replaced or left out."""
    theirs = dict(environ)
    if not _is_of(environ.get("HOME", ""), owner):
        theirs["HOME"] = str(owner.home)
    for name in _DIRECTORIES:
        if name in environ and not _is_of(environ[name], owner):
            del theirs[name]
    if "XDG_RUNTIME_DIR" not in theirs and _is_of(f"/run/user/{owner.uid}", owner):
        theirs["XDG_RUNTIME_DIR"] = f"/run/user/{owner.uid}"
    if owner.name is not None:
        theirs["USER"] = theirs["LOGNAME"] = owner.name
    return theirs


def _is_of(path: str, owner: FileOwner) -> bool:
    try:
        return os.stat(path).st_uid == owner.uid
    except OSError:
        return False

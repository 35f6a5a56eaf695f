"""The file system of a session: its guarantees, metadata of a replaced file, durable files.

A commit depends on the guarantee of leases, on an atomic exchange of two names, and on a new file
with the owner, mode and attributes of the old file. New files are made durable here, singly or all
at once, before other files refer to them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Literal, Self

from bsd.core.leases import swap_names

_libc = ctypes.CDLL(None, use_errno=True)

_STRONG = {
    0xEF53: "ext2/3/4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x2FC12FC1: "zfs",
    0x01021994: "tmpfs",
}
# Names for the status; every file system that is not in _STRONG is weak.
_WEAK = {
    0x794C7630: "overlayfs",
    0x65735546: "FUSE",
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x01021997: "9p",
    0xCA451A4E: "bcachefs",
    0xF15F: "eCryptfs",
    0x4D44: "FAT",
    0x2011BAB0: "exFAT",
    0x7366746E: "NTFS",
}
_WEAK_QUIET_SECONDS = 30.0
_LSOF_SECONDS = 10
# The errors of a rename to `.` if the kernel would otherwise allow the rename.
_NO_NAME = {errno.EBUSY, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ENOTEMPTY}
_FS_IOC_FSGETXATTR, _FS_XFLAG_PROJINHERIT = 0x801C581F, 0x200


# Errors that mean that the file system or the kernel does not exchange names.
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
# Without the exchange, a session would be missing from its path for a moment, or a line of another
# program could be lost.
MOVE_ELSEWHERE = (
    "move the sessions to ext4, xfs, btrfs, f2fs, zfs 2.2 or tmpfs; if this is a view of such "
    "a directory (bindfs, sshfs), run bsd on the directory itself"
)


@dataclass(frozen=True, slots=True)
class Strength:
    """How surely a commit can tell that no other process has the session open (DESIGN §4).

    "none": the file system cannot exchange two names, so bsd changes no sessions on it.
    """

    level: Literal["strong", "weak", "none"]
    filesystem: str
    why: str

    @property
    def quiet_seconds(self) -> float:
        """Seconds without a write before a session may be changed; 0 if leases are a proof."""
        return 0.0 if self.level == "strong" else _WEAK_QUIET_SECONDS


def strength(path: Path) -> Strength:
    """Return the strength of the file system of `path`; raises OSError if statfs fails."""
    if sys.platform != "linux":
        return Strength("weak", platform.system(), "this system has no leases")
    return judge(magic(path))


def judge(magic: int) -> Strength:
    """Return the strength of a file system by the magic number that statfs(2) returns."""
    if magic in _STRONG:
        return Strength("strong", _STRONG[magic], "write leases show every open file")
    if magic in _WEAK:
        return Strength("weak", _WEAK[magic], "leases are no proof here")
    return Strength("weak", f"unknown ({magic:#x})", "it is unknown whether leases work here")


def without_exchange(found: Strength) -> Strength:
    """Return the strength of a file system on which an exchange of names has failed."""
    return Strength("none", found.filesystem, "two names cannot be exchanged here")


def exchanges(one: Path, other: Path) -> bool:
    """Exchange two names; returns False if the file system does not support it. Raises OSError."""
    try:
        swap_names(str(one), str(other))
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        return False
    return True


def magic(path: Path) -> int:
    """Return the magic number of a file system from statfs(2); raises OSError."""
    # struct statfs has less than 200 bytes on all systems and begins with f_type, a word (s390x: 32
    # bits).
    answer = ctypes.create_string_buffer(512)
    if _libc.statfs(os.fsencode(path), answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    width = 4 if platform.machine() == "s390x" else ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(answer.raw[:width], sys.byteorder) & 0xFFFFFFFF


def refuse_unless_reached(file: Path, directory: Path) -> None:
    """Raise OSError (such as EXDEV) unless a rename could move `file` into `directory`.

    The test renames to `.`, which always fails, so no file is moved. The errno tells whether both
    are on the same mount, which device numbers do not tell.
    """
    try:
        os.rename(file, f"{directory}/.")
    except OSError as error:
        if error.errno not in _NO_NAME:
            raise
    # Subvolumes and quota projects: parts of a mount between which a rename is not possible.
    if os.stat(directory).st_dev != os.stat(file.parent).st_dev:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(directory))
    if _project(directory) != _project(file.parent):
        raise OSError(errno.EXDEV, "directories of two quota projects", str(directory))
    effective = os.access in os.supports_effective_ids
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))


def _project(directory: Path) -> int | None:
    """Return the quota project that new files in a directory inherit; None if none."""
    if sys.platform != "linux":
        return None
    answer = bytearray(28)  # struct fsxattr: flags, extent size, extents, project, …
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FSGETXATTR, answer)
    except OSError:  # a file system without quota projects
        return None
    finally:
        os.close(descriptor)
    flags, _, _, project = struct.unpack_from("=4I", answer)
    return int(project) if flags & _FS_XFLAG_PROJINHERIT else None


def open_elsewhere(path: Path) -> list[int]:
    """Return the ids of visible processes that have `path` open; for weak mounts only.

    Processes of other users are hidden unless bsd runs as root. On macOS this runs lsof, and
    returns [] if lsof is missing; this branch is untested.
    """
    if sys.platform == "linux":
        return _open_by_proc(path)
    lsof = shutil.which("lsof")
    if lsof is None:
        return []
    done = subprocess.run(
        [lsof, "-t", "--", str(path)],
        capture_output=True,
        text=True,
        timeout=_LSOF_SECONDS,
        check=False,  # it exits with 1 if no process has the file open
    )
    return [int(pid) for pid in done.stdout.split()]


def _open_by_proc(path: Path) -> list[int]:
    wanted = os.stat(path)
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # the process has ended, or belongs to another user
            continue
        if any(_is_open_as(f"/proc/{pid}/fd/{name}", path.name, wanted) for name in names):
            found.append(int(pid))
    return found


def _is_open_as(link: str, name: str, wanted: os.stat_result) -> bool:
    try:
        # Compare the name first: a stat of every open file could hang on a dead mount. Compare only
        # the name: in another container, the directories may have other paths.
        if not os.readlink(link).endswith(f"/{name}"):
            return False
        return os.path.samestat(os.stat(link), wanted)
    except OSError:  # the file was just closed
        return False


# --- metadata of the replaced file ---

_COPYFILE_ACL = 1
_COPYFILE_XATTR = 4


class MetadataNotKept(Exception):
    """The new file cannot be given the mode, owner, ACL or attributes of the original."""


def keep_metadata(source: int, target: int, *, mtime: bool = False) -> None:
    """Give the new file the owner, mode, ACL and attributes of the original.

    Args:
        source, target: descriptors of the original and the new file.
        mtime: also copy the modification time; else the new time is later than the original's, even
            if that lies in the future.

    Raises:
        MetadataNotKept: the new file would differ.
    """
    original = os.fstat(source)
    try:
        _keep_owner(original, target)
        _keep_attributes(source, target)
        os.fchmod(target, stat.S_IMODE(original.st_mode))
    except OSError as error:
        raise MetadataNotKept(error.strerror) from error
    _check_metadata(source, target)
    now = os.fstat(target)
    if mtime:
        os.utime(target, ns=(now.st_atime_ns, original.st_mtime_ns))
    elif now.st_mtime_ns <= original.st_mtime_ns:
        os.utime(target, ns=(now.st_atime_ns, original.st_mtime_ns + 1))


def _keep_owner(original: os.stat_result, target: int) -> None:
    now = os.fstat(target)
    if now.st_uid != original.st_uid:
        os.fchown(target, original.st_uid, -1)
    if now.st_gid != original.st_gid:
        os.fchown(target, -1, original.st_gid)


def _keep_attributes(source: int, target: int) -> None:
    """Copy the extended attributes, including POSIX ACLs (system.posix_acl_access).

    On macOS, where Python can read neither, fcopyfile copies both; this branch is untested.
    """
    if sys.platform == "darwin":
        if _libc.fcopyfile(source, target, None, _COPYFILE_ACL | _COPYFILE_XATTR):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return
    wanted, present = _attributes(source), _attributes(target)
    for name in present.keys() - wanted.keys():  # such as a directory's default ACL
        os.removexattr(target, name)
    for name, value in wanted.items():
        if present.get(name) != value:
            os.setxattr(target, name, value)


def _attributes(fd: int) -> dict[str, bytes]:
    if sys.platform != "linux":  # Python can read them only on Linux
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # a file system without attributes
            return {}
        raise


def _check_metadata(source: int, target: int) -> None:
    original, now = os.fstat(source), os.fstat(target)
    for what in ("st_mode", "st_uid", "st_gid"):
        if getattr(original, what) != getattr(now, what):
            raise MetadataNotKept(f"{what} {getattr(original, what)} became {getattr(now, what)}")
    if _attributes(source) != _attributes(target):
        raise MetadataNotKept("extended attributes differ")


# --- many files made durable ---

# For some dozens of files or more, a syncfs(2) is far cheaper than an fsync of each file: the file
# system commits its journal once instead of hundreds of times. syncfs also writes the waiting data
# of other programs, which costs bsd at most the time to write the data that waits at that moment.

# On these file systems, syncfs waits for data and names, and reports failures. On others it may do
# less: FUSE does not pass it on.
_SYNCED_AS_A_WHOLE = {0xEF53, 0x58465342, 0x9123683E, 0x01021994}  # ext2/3/4, xfs, btrfs, tmpfs
_REPORTS_SINCE = (5, 8)  # Linux; earlier kernels do not report write-back errors
_MANY = 64  # files
_PORTION = 32 << 20  # bytes; writing them back takes longer than starting a thread
_THREADS = 8  # fsync waits for the disk, not for the CPU
_SHARE = 32  # files per task of a thread


class Syncing:
    """Makes the files that are created in a directory while this is open durable together.

    Raises OSError. With many bytes, write-back of the first files starts while later files are
    still being created, so that the final sync is short.
    """

    def __init__(self, directory: Path, expected: int) -> None:
        """`expected`: the approximate number of files."""
        self._directory = directory
        # Open the descriptor before the first file: it reports errors that occur from now on.
        as_a_whole = expected >= _MANY and _can_sync_as_a_whole(directory)
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC) if as_a_whole else -1
        self._paths: list[str] = []
        self._waiting = 0  # bytes written since the last early sync began
        self._early: Thread | None = None
        self._problem: OSError | None = None  # of an early sync; the kernel reports it only once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._early:
            self._early.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def add(self, path: str, size: int) -> None:
        """Add a file that is written and closed; `size` in bytes."""
        if self._descriptor < 0:
            self._paths.append(path)
            return
        self._waiting += size
        if self._waiting >= _PORTION and not (self._early and self._early.is_alive()):
            self._waiting = 0
            thread = Thread(target=self._sync_early, name="bsd-sync")
            with suppress(RuntimeError):  # no thread can be started: `sync` does all the work
                thread.start()
                self._early = thread

    def _sync_early(self) -> None:
        try:
            _sync_file_system(self._descriptor)
        except OSError as error:
            self._problem = self._problem or error

    def sync(self) -> None:
        """Make the content of the files durable; the names need a sync of the directory."""
        if self._descriptor < 0:
            _sync_files(self._paths)
            return
        if self._early:
            self._early.join()
        _sync_file_system(self._descriptor)
        if self._problem:
            raise self._problem


def _sync_file_system(descriptor: int) -> None:
    if _libc.syncfs(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _can_sync_as_a_whole(directory: Path) -> bool:
    return _kernel_reports() and magic(directory) in _SYNCED_AS_A_WHOLE


@cache
def _kernel_reports() -> bool:
    if sys.platform != "linux":
        return False
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= _REPORTS_SINCE


def _sync_files(paths: Sequence[str]) -> None:
    if len(paths) < _THREADS:
        _fsync_each(paths)
        return
    # Submitting files one by one can cost more than the fsync itself. But a share that a thread has
    # begun is completed even after an error or Ctrl-C, so shares are small.
    size = min(_SHARE, -(-len(paths) // _THREADS))
    shares = [paths[start : start + size] for start in range(0, len(paths), size)]
    with ThreadPoolExecutor(_THREADS, "bsd-fsync") as pool:
        for _ in pool.map(_fsync_each, shares):  # map raises a thread's error
            pass


def _fsync_each(paths: Iterable[str]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""The file system below a session: its abilities, metadata of a replaced file, durable files.

A commit depends on the strength of leases, on an atomic exchange of two names, and on a new file
with the owner, mode and attributes of the old one. New files are made durable here, each or all at
once, before anything refers to them.
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
# Named so that status can say it; every kind that is not in _STRONG is weak.
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
# The errors of a rename to `.` where the kernel has no other objection.
_NO_NAME = {errno.EBUSY, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ENOTEMPTY}
_FS_IOC_FSGETXATTR, _FS_XFLAG_PROJINHERIT = 0x801C581F, 0x200


# How kernels say that a file system exchanges no names, or that they do not let it.
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
# Without it there is a moment in which a session is not at its path, or another's line is lost.
MOVE_ELSEWHERE = (
    "move the sessions to ext4, xfs, btrfs, f2fs, zfs 2.2 or tmpfs; where this is a view of such "
    "a directory (bindfs, sshfs), let bsd run on the directory itself"
)


@dataclass(frozen=True, slots=True)
class Strength:
    """How sure a commit can be that no other process has the session open (DESIGN §4).

    "none": two names cannot be exchanged, and so nothing is changed.
    """

    level: Literal["strong", "weak", "none"]
    filesystem: str
    why: str

    @property
    def quiet_seconds(self) -> float:
        """Seconds without a write before a session may be changed; 0 where leases are proof."""
        return 0.0 if self.level == "strong" else _WEAK_QUIET_SECONDS


def strength(path: Path) -> Strength:
    """Judge the file system that holds `path`; raises OSError if it cannot be asked."""
    if sys.platform != "linux":
        return Strength("weak", platform.system(), "this system has no leases")
    return judge(magic(path))


def judge(magic: int) -> Strength:
    """Judge a file system by the magic number that statfs(2) gives."""
    if magic in _STRONG:
        return Strength("strong", _STRONG[magic], "write leases show every open file")
    if magic in _WEAK:
        return Strength("weak", _WEAK[magic], "leases prove nothing here")
    return Strength("weak", f"unknown ({magic:#x})", "nothing is known of leases here")


def without_exchange(found: Strength) -> Strength:
    """Return the strength of a file system that turned out not to exchange names."""
    return Strength("none", found.filesystem, "two names cannot be exchanged here")


def exchanges(one: Path, other: Path) -> bool:
    """Exchange two names; False where that is not possible at all. Raises OSError."""
    try:
        swap_names(str(one), str(other))
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        return False
    return True


def magic(path: Path) -> int:
    """The number by which statfs(2) names a file system; raises OSError if it cannot be asked."""
    # struct statfs is under 200 bytes everywhere; f_type comes first, a word (s390x: 32 bits).
    answer = ctypes.create_string_buffer(512)
    if _libc.statfs(os.fsencode(path), answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    width = 4 if platform.machine() == "s390x" else ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(answer.raw[:width], sys.byteorder) & 0xFFFFFFFF


def refuse_unless_reached(file: Path, directory: Path) -> None:
    """Raise OSError (EXDEV among others) unless a rename could bring `file` into `directory`.

    Nothing is renamed: the name `.` can be given to no file. The kernel says so only if both lie
    on one mount, which device numbers do not tell.
    """
    try:
        os.rename(file, f"{directory}/.")
    except OSError as error:
        if error.errno not in _NO_NAME:
            raise
    # Parts of one mount between which a file system renames nothing.
    if os.stat(directory).st_dev != os.stat(file.parent).st_dev:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(directory))
    if _project(directory) != _project(file.parent):
        raise OSError(errno.EXDEV, "directories of two quota projects", str(directory))
    effective = os.access in os.supports_effective_ids
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))


def _project(directory: Path) -> int | None:
    """The quota project that files in a directory belong to; None if it gives them none."""
    if sys.platform != "linux":
        return None
    answer = bytearray(28)  # struct fsxattr: flags, extent size, extents, project, …
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FSGETXATTR, answer)
    except OSError:  # a file system without
        return None
    finally:
        os.close(descriptor)
    flags, _, _, project = struct.unpack_from("=4I", answer)
    return int(project) if flags & _FS_XFLAG_PROJINHERIT else None


def open_elsewhere(path: Path) -> list[int]:
    """List the processes that visibly have `path` open; for weak mounts only.

    It sees the processes that this user may see: others' stay hidden unless bsd runs as root.
    macOS is asked through lsof; without it the list is empty. Not tried on macOS.
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
        except OSError:  # ended meanwhile, or not ours to see
            continue
        if any(_is_open_as(f"/proc/{pid}/fd/{name}", path.name, wanted) for name in names):
            found.append(int(pid))
    return found


def _is_open_as(link: str, name: str, wanted: os.stat_result) -> bool:
    try:
        # The name first: a stat of every open file could hang on a dead mount.
        # The directories before it may read differently in another container.
        if not os.readlink(link).endswith(f"/{name}"):
            return False
        return os.path.samestat(os.stat(link), wanted)
    except OSError:  # closed meanwhile
        return False


# --- metadata of the replaced file ---

_COPYFILE_ACL = 1
_COPYFILE_XATTR = 4


class MetadataNotKept(Exception):
    """The new file cannot be given the mode, owner, ACL or attributes of the original."""


def keep_metadata(source: int, target: int, *, mtime: bool = False) -> None:
    """Give the new file the original's owner, mode, ACL and attributes; raises MetadataNotKept.

    Without `mtime`, that must advance, also where the original's lies in the future.
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
    """Extended attributes; POSIX ACLs are among them under the name system.posix_acl_access.

    On macOS, where Python cannot read either, the system copies both (not tried there).
    """
    if sys.platform == "darwin":
        if _libc.fcopyfile(source, target, None, _COPYFILE_ACL | _COPYFILE_XATTR):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return
    wanted, present = _attributes(source), _attributes(target)
    for name in present.keys() - wanted.keys():  # a directory's default ACL, for one
        os.removexattr(target, name)
    for name, value in wanted.items():
        if present.get(name) != value:
            os.setxattr(target, name, value)


def _attributes(fd: int) -> dict[str, bytes]:
    if sys.platform != "linux":  # Python cannot read them elsewhere
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:  # a file system that has none
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

# From some dozens on, one syncfs(2) is far cheaper than an fsync of each: a journal is committed
# once instead of hundreds of times. It also writes the data that other programs have left in
# memory; that costs them nothing, and us at most the data that was waiting at that moment.

# Here syncfs waits for data and names, and reports failures. Elsewhere it may do less: FUSE,
# for one, does not pass it on.
_SYNCED_AS_A_WHOLE = {0xEF53, 0x58465342, 0x9123683E, 0x01021994}  # ext2/3/4, xfs, btrfs, tmpfs
_REPORTS_SINCE = (5, 8)  # Linux; before, errors of writing back went unnoticed
_MANY = 64  # files
_PORTION = 32 << 20  # bytes; writing them back takes longer than to start a thread for it
_THREADS = 8  # fsync waits for the disk, not for the CPU
_SHARE = 32  # files that a thread takes at once


class Syncing:
    """The files that are created in a directory while this is open, to be made durable together.

    Raises OSError. With many bytes the disk is given work early: it writes the first files back
    while the next are made, so that little is left to wait for.
    """

    def __init__(self, directory: Path, expected: int) -> None:
        """`expected` is about how many files there will be."""
        self._directory = directory
        # Opened before the first file is: errors are told of from then on.
        as_a_whole = expected >= _MANY and _can_sync_as_a_whole(directory)
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC) if as_a_whole else -1
        self._paths: list[str] = []
        self._waiting = 0  # bytes written since the disk was last told to begin
        self._early: Thread | None = None
        self._problem: OSError | None = None  # of an early sync; the kernel reports it once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._early:
            self._early.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def add(self, path: str, size: int) -> None:
        """Tell of a file that is written and closed; `size` in bytes."""
        if self._descriptor < 0:
            self._paths.append(path)
            return
        self._waiting += size
        if self._waiting >= _PORTION and not (self._early and self._early.is_alive()):
            self._waiting = 0
            thread = Thread(target=self._sync_early, name="bsd-sync")
            with suppress(RuntimeError):  # no room for a thread: all is synced in the end
                thread.start()
                self._early = thread

    def _sync_early(self) -> None:
        try:
            _sync_file_system(self._descriptor)
        except OSError as error:
            self._problem = self._problem or error

    def sync(self) -> None:
        """Make the content of the files durable; their names need a sync of the directory."""
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
    # Handing out files one by one costs more than many a file system takes for the fsync itself;
    # but a share that is handed out is done to its end, even after an error or Ctrl-C.
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

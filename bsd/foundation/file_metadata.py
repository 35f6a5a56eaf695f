"""A new file takes over whose the old one was, and who may do what with it."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys

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
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fcopyfile(source, target, None, _COPYFILE_ACL | _COPYFILE_XATTR):
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

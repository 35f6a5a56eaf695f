"""Takes conversations out of an agent's `sessions.json` and puts them back, byte for byte.

The file is the gateway's. Its older versions change it under the lock `sessions.json.lock` (the
same kind as a session's), its newer ones from a queue of their own; all of them write a new file
and rename it. So do we: under that lock, by exchange, and what comes out must be what was read.
What nobody can exclude is a newer gateway that had read the file before us and writes after us:
then the conversation is listed again, with no transcript behind it.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bsd.agents.owner import PutBack
from bsd.foundation.errors import Conflict, TemporaryFailure
from bsd.foundation.files import (
    LARGEST_RECORD,
    NotPlain,
    open_plain,
    read_plain,
    sync_dir,
    write_all,
)
from bsd.foundation.filesystem import MetadataNotKept, keep_metadata
from bsd.foundation.json_text import is_too_large
from bsd.foundation.leases import swap_names
from bsd.text import splice
from bsd.text.change import Identity
from bsd.text.spans import Search, encode_key, scan

REGISTRY_FILE = "sessions.json"
# Of the members around one taken out, so many are remembered to find its place again.
_NEIGHBOURS = 4
_TRIES = 5
_TEMPORARY = ".bsd.tmp"
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}

Edit = Callable[[bytes], bytes]


def take_out(
    sessions: Path,
    keys_of: Callable[[dict[str, Any]], Collection[str]],
    keep: Callable[[str], None],
    *,
    wait: float,
) -> None:
    """Remove the members that `keys_of` names; `keep` gets the excerpt that puts them back.

    `keep` has made it durable when it returns, and may be called again. Raises Busy, Conflict for
    a file that cannot be edited, OSError.
    """

    def edit(raw: bytes) -> bytes:
        keys = list(keys_of(parsed(raw)))
        if not keys:
            return raw
        keep(excerpt(raw, keys))
        return splice.edit(raw, remove=[(key,) for key in keys])

    _edit(sessions / REGISTRY_FILE, edit, wait)


def put_back(sessions: Path, text: str, *, wait: float) -> PutBack:
    """Put the members of an excerpt back, each where it stood; a key that is taken stays so.

    Raises as `take_out`. Without a file one is made.
    """
    original = text.encode()
    was = parsed(original)
    wanted = [key for key, value in was.items() if value != 0]  # the others are neighbours
    done = PutBack()

    def edit(raw: bytes) -> bytes:
        nonlocal done
        there = parsed(raw)
        keys = [key for key in wanted if key not in there]
        # One that stands there as it was has been put back before, and nobody took it.
        taken = [key for key in wanted if key in there and there[key] != was[key]]
        done = PutBack(tuple(key for key in wanted if key not in taken), tuple(taken))
        return (
            splice.edit(raw, reinsert=[(key,) for key in keys], original=original) if keys else raw
        )

    path = sessions / REGISTRY_FILE
    if not os.path.lexists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _edit(path, edit, wait)
    return done


def excerpt_of(sessions: Path, keys: Collection[str]) -> str | None:
    """The excerpt that `take_out` would keep of these keys; None if there are none, or no file."""
    if not keys:
        return None
    try:
        raw = read_plain(sessions / REGISTRY_FILE, LARGEST_RECORD)
        return excerpt(raw, [key for key in keys if key in parsed(raw)])
    except (OSError, Conflict, splice.SpliceError):  # it changes all the time
        return None


def parsed(raw: bytes) -> dict[str, Any]:
    """Return what a registry says; an empty file says nothing. Raises Conflict."""
    if not raw.strip():
        return {}
    if is_too_large(raw):
        raise Conflict(
            f"{REGISTRY_FILE} would take too much memory to be read", hint="mend it, try again"
        )
    try:
        content = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Conflict(
            f"{REGISTRY_FILE} is not valid JSON", hint="mend it, then try again"
        ) from error
    if not isinstance(content, dict):
        raise Conflict(f"{REGISTRY_FILE} is not a map of sessions", hint="mend it, then try again")
    return content


def excerpt(raw: bytes, keys: Collection[str]) -> str:
    """Cut out some members and, as `"key":0`, those near them: all that putting back needs."""
    wanted = {encode_key(key) for key in keys}
    found = scan(raw, Search([(key,) for key in keys], listed=[()]))
    whole, members = found.span(()), found.members_of(())
    ours = {n for n, (key, _, _) in enumerate(members) if key in wanted}
    near = sorted(
        {
            n
            for middle in ours
            for n in range(max(0, middle - _NEIGHBOURS), middle + _NEIGHBOURS + 1)
            if n < len(members)
        }
    )
    text, last = b"", -1
    for n in near:
        key, start, end = members[n]
        if n == last + 1:
            text += raw[whole[0] if n == 0 else members[last][2] : start]
        else:
            text += b"{" if not text else b","
        text += raw[start:end] if n in ours else splice.encode_string(key.decode()) + b":0"
        last = n
    tail = raw[members[last][2] : whole[1]] if last == len(members) - 1 else b"}"
    return (text + tail).decode()


def _edit(path: Path, edit: Edit, wait: float) -> None:
    """Put an edited file in the place of one, if nobody changed it meanwhile."""
    if not os.path.lexists(path):
        return
    from bsd.agents.openclaw.lock import SessionLock  # noqa: PLC0415 - most calls only look

    with SessionLock(path, wait):
        for left_behind in path.parent.glob(f"{path.name}.*{_TEMPORARY}"):
            left_behind.unlink(missing_ok=True)  # by a process that was killed: we have the lock
        for _ in range(_TRIES):
            if _edited(path, edit):
                return
    raise TemporaryFailure(f"{path} is being written all the time", hint="again later")


def _edited(path: Path, edit: Edit) -> bool:
    try:
        source = open_plain(path)
    except NotPlain as error:
        raise Conflict(f"{path} is not a plain file", hint="replace it by its file") from error
    try:
        read = Identity.of(os.fstat(source))
        if read.size > LARGEST_RECORD:
            raise Conflict(f"{path} is larger than {LARGEST_RECORD} bytes", hint="mend it")
        raw = os.pread(source, read.size, 0) if read.size else b""
        new = edit(raw or b"{}")
        if new == (raw or b"{}"):
            return True
        # Much as the gateway names its own, so that nobody takes it for a session.
        temporary = path.with_name(f"{path.name}.{os.getpid()}{_TEMPORARY}")
        try:
            _write(source, temporary, new)
            return _replace(path, temporary, read)
        finally:
            temporary.unlink(missing_ok=True)
            sync_dir(path.parent)
    finally:
        os.close(source)


def _write(source: int, temporary: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    target = os.open(temporary, flags, 0o600)
    try:
        write_all(target, data)
        try:
            keep_metadata(source, target)
        except MetadataNotKept as error:
            raise Conflict(
                f"{REGISTRY_FILE} cannot be given its owner and mode: {error}",
                hint="run bsd as the user who owns it",
            ) from error
        os.fsync(target)
    finally:
        os.close(target)


def _replace(path: Path, temporary: Path, read: Identity) -> bool:
    """Put `temporary` at `path`; False if what stood there is not what was read."""
    try:
        swap_names(str(temporary), str(path))
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        if not _is(path, read):
            return False
        os.rename(temporary, path)
        return True
    if _is(temporary, read):
        return True
    swap_names(str(temporary), str(path))
    return False


def _is(path: Path, known: Identity) -> bool:
    found = path.lstat()
    # A rename changes ctime, so it tells nothing here.
    same = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return same == (known.dev, known.ino, known.size, known.mtime_ns)

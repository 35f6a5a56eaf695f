"""Late bytes that have no session to go back to; kept until a person looks at them."""

from __future__ import annotations

import errno
import filecmp
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bsd.foundation.errors import Forbidden
from bsd.foundation.files import LARGEST_NOTE, make_private_dir, read_plain, sync_dir, write_private
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout
from bsd.session.commit.protocol import copy_range

_BYTES = ".late"
_ABOUT = ".json"
_BROKEN = (OSError, LookupError, TypeError, ValueError, OverflowError, RecursionError)


@immutable
class Orphan:
    """Bytes that somebody wrote for a session and that could not be put into it."""

    file: Path  # the bytes, as they were written
    session: str
    target: str  # path of the session file they were meant for
    reason: str
    size: int  # bytes
    found_at_ns: int  # epoch

    @property
    def files(self) -> tuple[Path, ...]:
        """The bytes, and what is told of them."""
        return tuple(dict.fromkeys((self.file, self.file.with_suffix(_ABOUT))))

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract."""
        return {**asdict(self), "file": str(self.file)}


def list_orphans(layout: Layout) -> list[Orphan]:
    """Every orphan under the root, the oldest first; for status, doctor and verify."""
    return sorted(_orphans(layout.orphans), key=lambda orphan: (orphan.found_at_ns, orphan.file))


def forget_orphan(orphan: Orphan) -> None:
    """Remove an orphan; raises OSError."""
    for path in orphan.files:  # as long as the last is there it is told of
        path.unlink(missing_ok=True)


def _orphans(directory: Path) -> Iterator[Orphan]:
    for about in directory.glob(f"*{_ABOUT}"):
        with suppress(FileNotFoundError):  # somebody has just dealt with it
            try:
                yield _orphan(about)
            except _BROKEN as error:
                yield _unknown(about, error)


def _orphan(about: Path) -> Orphan:
    said = json.loads(read_plain(about, LARGEST_NOTE))
    return Orphan(
        file=about.with_suffix(_BYTES),
        session=str(said["session"]),
        target=str(said["target"]),
        reason=str(said["reason"]),
        size=int(said["size"]),
        found_at_ns=int(said["found_at_ns"]),
    )


def _unknown(about: Path, error: Exception) -> Orphan:
    """What does not say what it is; raises FileNotFoundError if it is gone."""
    return Orphan(
        file=about,
        session="(unknown)",
        target="",
        reason=f"what is told of them cannot be read: {error}",
        size=0,
        found_at_ns=about.lstat().st_mtime_ns,
    )


def _twin(layout: Layout, file: Path, about: Orphan) -> Orphan | None:
    """An orphan of the same session that holds the same bytes."""
    for other in _orphans(layout.orphans):
        if (other.session, other.target, other.size) == (about.session, about.target, about.size):
            with suppress(OSError):
                if filecmp.cmp(file, other.file, shallow=False):
                    return other
    return None


def _is_inside(layout: Layout) -> bool:
    with suppress(Forbidden):
        return bool(layout.refuse_outside(layout.orphans))
    return False


def keep_orphan(layout: Layout, name: str, source: int, start: int, about: Orphan) -> Orphan:
    """Copy `about.size` bytes of an open file from `start`; durable when this returns.

    `name` tells these bytes from all others: keeping them twice makes one orphan. So do bytes of
    one session that are the same.
    """
    if not _is_inside(layout):
        raise OSError(errno.EXDEV, f"{layout.orphans} leads out of the root")
    directory = make_private_dir(layout.orphans)
    file = directory / f"{name}{_BYTES}"
    half = directory / f"{name}.half"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    target = os.open(half, flags, 0o600)
    try:
        copy_range(source, start, target, about.size)
        os.fsync(target)
    finally:
        os.close(target)
    if twin := _twin(layout, half, about):
        half.unlink()
        return twin
    os.rename(half, file)
    sync_dir(directory)
    told = asdict(about)
    del told["file"]
    write_private(file.with_suffix(_ABOUT), json.dumps(told, indent=2).encode() + b"\n")
    return Orphan(file=file, **told)

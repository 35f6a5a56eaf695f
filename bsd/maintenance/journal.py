"""Crash journals of the trash (deletes, restores, removals), in `.brainsurgeon/moving`.

A journal is a small JSON file. It is durable before the first step of an operation and removed
after the last step. If the process is killed, the next call of bsd uses the journal to finish or
undo the operation. The operations themselves define their files, their steps and the order of
these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsd.core.errors import Conflict, os_problem
from bsd.core.files import (
    LARGEST_RECORD,
    NotPlain,
    TooLarge,
    makers,
    read_plain,
    sync_dir,
    why_not_our_file,
    write_private,
)
from bsd.core.layout import Layout
from bsd.transcripts.reader import is_too_large

_ENDING = ".json"


@dataclass(slots=True)
class Journal:
    """One operation that has begun and not ended.

    Attributes:
        path: the journal's file.
        aim: the kind of operation, which determines the content of `details`.
        actor: as in the audit log.
        at: when the operation began, epoch seconds.
        details: the JSON values that are needed to continue the operation.
    """

    path: Path
    aim: str
    actor: str
    at: float
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, layout: Layout, key: str, aim: str, actor: str, at: float, **details: Any
    ) -> Journal:
        """Return a journal that is not written yet.

        Args:
            key: a name that is unique among the running operations with this aim.
        """
        directory = layout.refuse_outside(layout.moving)
        return cls(directory / f"{key}.{aim}{_ENDING}", aim, actor, at, details)

    def write(self) -> None:
        """Write the journal durably in its present state; raises OSError."""
        document = {"aim": self.aim, "actor": self.actor, "at": self.at, **self.details}
        write_private(self.path, json.dumps(document).encode())

    def end(self) -> None:
        """Remove the journal, because the operation is complete or was undone."""
        self.path.unlink(missing_ok=True)
        sync_dir(self.path.parent)


def read_journal(layout: Layout, path: Path) -> Journal:
    """Read a journal.

    Raises:
        FileNotFoundError: the operation has ended.
        Conflict: bsd did not write this file, or its content is not valid.
        OSError: the file cannot be read.
    """
    if why := why_not_our_file(path.lstat(), makers(layout.root)):
        raise Conflict(
            f"the journal {path} is ignored, it is not bsd's own: {why}",
            hint="find out which program wrote it, then move it away",
        )
    try:
        document: dict[str, Any] = dict(read_json(path))
        aim, actor = str(document.pop("aim")), str(document.pop("actor"))
        return Journal(path, aim, actor, float(document.pop("at")), document)
    except (NotPlain, TooLarge, LookupError, TypeError, ValueError, RecursionError) as error:
        raise cannot_be_read(path, error) from error


def read_json(path: Path) -> Any:
    """Return the JSON value in a file; raises OSError, ValueError (no JSON, or too large)."""
    data = read_plain(path, LARGEST_RECORD)
    if is_too_large(data):
        raise ValueError(f"{path} would take too much memory")
    return json.loads(data)


def cannot_be_read(path: Path, error: Exception) -> Conflict:
    """Return the error for a journal whose content is not valid."""
    return Conflict(
        f"the journal {path} cannot be read: {error!r}",
        hint="if a newer bsd wrote it, run that version; this one leaves its files as they are",
    )


def pending_journals(layout: Layout, *aims: str) -> Iterator[Path]:
    """Yield the journals with any of these aims, those of running processes included.

    The aim is part of the file name, so unreadable journals are found as well. Raises BsdError.
    """
    directory = layout.refuse_outside(layout.moving)
    try:
        endings = tuple(f".{aim}{_ENDING}" for aim in aims)
        names = sorted(name for name in os.listdir(directory) if name.endswith(endings))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise os_problem(error, f"reading {directory}") from error
    yield from (directory / name for name in names if not name.startswith("."))

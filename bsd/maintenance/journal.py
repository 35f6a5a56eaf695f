"""Crash journals: operations of trash, forget and bring-back, written before their first step.

A journal is one small JSON file in `.brainsurgeon/moving`. It is durable before the first step of
an operation and removed after the last, so that the next call of bsd can finish or undo it if
the process was killed. The files on disk, the steps and their order belong to the operations.
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
        aim: the kind of operation; each kind has values of its own.
        actor: as in the audit log.
        at: when it began, epoch seconds.
        details: data of this kind of operation that is needed to go on: JSON values.
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
            key: a name that no other operation with this aim has at the same time.
        """
        directory = layout.refuse_outside(layout.moving)
        return cls(directory / f"{key}.{aim}{_ENDING}", aim, actor, at, details)

    def write(self) -> None:
        """Make the journal durable as it is now; raises OSError."""
        document = {"aim": self.aim, "actor": self.actor, "at": self.at, **self.details}
        write_private(self.path, json.dumps(document).encode())

    def end(self) -> None:
        """Remove the journal: the operation is complete, or nothing of it happened."""
        self.path.unlink(missing_ok=True)
        sync_dir(self.path.parent)


def read_journal(layout: Layout, path: Path) -> Journal:
    """Read a journal.

    Raises:
        FileNotFoundError: the operation has ended.
        Conflict: bsd has not written this file, or it cannot be understood.
        OSError: the file cannot be read.
    """
    if why := why_not_our_file(path.lstat(), makers(layout.root)):
        raise Conflict(
            f"the journal {path} is left alone, it is not bsd's own: {why}",
            hint="look at who put it there, then move it away",
        )
    try:
        document: dict[str, Any] = dict(read_json(path))
        aim, actor = str(document.pop("aim")), str(document.pop("actor"))
        return Journal(path, aim, actor, float(document.pop("at")), document)
    except (NotPlain, TooLarge, LookupError, TypeError, ValueError, RecursionError) as error:
        raise cannot_be_read(path, error) from error


def read_json(path: Path) -> Any:
    """Return the JSON value in a file; raises ValueError if it is no JSON or too long, OSError."""
    data = read_plain(path, LARGEST_RECORD)
    if is_too_large(data):
        raise ValueError(f"{path} would take too much memory")
    return json.loads(data)


def cannot_be_read(path: Path, error: Exception) -> Conflict:
    """Return the problem of a journal whose content is not as its operation writes it."""
    return Conflict(
        f"the journal {path} cannot be read: {error!r}",
        hint="was it written by a newer bsd? what it is about is left as it is",
    )


def pending_journals(layout: Layout, *aims: str) -> Iterator[Path]:
    """Yield the journals with one of these aims, also those of running processes; raises BsdError.

    The file name tells the aim, so that a journal that cannot be read is found, too.
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

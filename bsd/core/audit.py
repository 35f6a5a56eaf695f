"""The audit: `<root>/.brainsurgeon/audit.jsonl`, one line per change with its actor (SPEC §7)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from bsd.core.errors import BsdError, os_problem
from bsd.core.files import (
    LARGEST_RECORD,
    TooLarge,
    ends_torn,
    make_private_dir,
    open_plain,
    plain_stream,
    sync_dir,
    write_all,
)
from bsd.core.formatting import iso_utc
from bsd.core.layout import inside

_log = structlog.stdlib.get_logger(module="audit")

# The action of a record that a stored value did not come back.
RESTORE_FAILED = "restore_failed"

_refused: set[Path] = set()


class AuditLog:
    """Appends to and reads an audit file; keeps no file open, so the file may be rotated."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    def record(
        self,
        *,
        actor: str,
        action: str,
        agent: str | None = None,
        session_id: str | None = None,
        **counts: object,
    ) -> None:
        """Append a line about a completed action; it is durable when this returns.

        If the line cannot be written, an error is logged but not raised: the action is complete,
        and a full disk must not make it look failed.

        Args:
            counts: further figures, such as bytes and files; `files_removed` becomes
                `filesRemoved`.
        """
        entry: dict[str, object] = {"time": iso_utc(self._clock()), "actor": actor}
        entry["action"] = action
        if agent is not None:
            entry["agent"] = agent
        if session_id is not None:
            entry["sessionId"] = session_id
        entry.update({_camel(name): value for name, value in counts.items()})
        # Escapes keep lone surrogates and line separators out of the file.
        line = json.dumps(entry, separators=(",", ":"), default=str).encode() + b"\n"
        try:
            self._append(line)
        except OSError as error:
            _cannot_be_written(os_problem(error, f"writing {self._path}"), action)
        except BsdError as error:
            _cannot_be_written(error, action)

    def refused(self, file: Path, why: str, actor: str) -> None:
        """Record that bsd does not trust a file and ignores it; once per file and process."""
        if file not in _refused:
            _refused.add(file)
            self.record(actor=actor, action="refuse_file", file=str(file), reason=why)

    def search(self, needle: bytes) -> Iterator[dict[str, Any]]:
        """Yield the changes whose lines contain these bytes, oldest first.

        A torn line appears as `{"torn": …}`.
        """
        try:
            with plain_stream(self._path) as file:
                for line in iter(partial(file.readline, LARGEST_RECORD), b""):
                    if len(line) == LARGEST_RECORD:  # not written by bsd, and perhaps endless
                        raise TooLarge(self._path, LARGEST_RECORD)
                    if needle in line:
                        yield _parsed(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise os_problem(error, f"reading {self._path}") from error

    def size(self) -> int:
        """Return the size of the file in bytes; 0 if there is none."""
        try:
            return self._path.lstat().st_size
        except OSError:
            return 0

    def count(self, action: str, offset: int) -> tuple[int, int]:
        """Return how many changes from an offset on are of this action, and where they end.

        A file that has become shorter, as after a rotation, is read from its beginning. A file that
        cannot be read has no changes; other calls tell of that.
        """
        needle, found = f'"action":"{action}"'.encode(), 0
        try:
            with plain_stream(self._path) as file:
                if offset > os.fstat(file.fileno()).st_size:
                    offset = 0
                file.seek(offset)
                for line in iter(partial(file.readline, LARGEST_RECORD), b""):
                    if not line.endswith(b"\n"):
                        break
                    offset += len(line)
                    found += needle in line
        except OSError:
            pass
        return found, offset

    def _append(self, line: bytes) -> None:
        inside(self._path.parent, self._path.parent.parent)
        make_private_dir(self._path.parent)
        descriptor = open_plain(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            write_all(descriptor, b"\n" * ends_torn(descriptor) + line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not size:
            sync_dir(self._path.parent)  # the file may be new


def _cannot_be_written(problem: BsdError, action: str) -> None:
    _log.error("The audit log cannot be written", error=problem.message, action=action)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if isinstance(entry, dict):
        return entry
    return {"torn": line.rstrip(b"\n").decode("utf-8", "replace")}

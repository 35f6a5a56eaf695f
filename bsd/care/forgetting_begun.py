"""What is being forgotten, noted without a word of it until it is done."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson

from bsd.foundation.errors import BsdError, os_problem
from bsd.foundation.files import LARGEST_RECORD, read_plain, sync_dir, write_private
from bsd.foundation.immutable import immutable
from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.logs import get_logger

_log = get_logger("archive")

_VERSION = 1
_ENDING = ".json"


@immutable
class Begun:
    """One call of `forget`: what it takes. `at` is when it began, in epoch seconds."""

    path: Path
    session: SessionName
    at: float
    entry: str | None = None
    origin: str | None = None  # of the only copy that goes; None: all that is kept
    hashes: frozenset[str] = frozenset()  # of the lines that are kept of it

    @classmethod
    def now(cls, layout: Layout, name: SessionName, at: float, entry: str | None = None) -> Begun:
        """One that begins; it must be written."""
        return cls(layout.forgetting / f"{secrets.token_hex(8)}{_ENDING}", name, at, entry)

    def write(self) -> None:
        """Make it durable; raises Unavailable, Forbidden."""
        said = {
            "version": _VERSION,
            "session": str(self.session),
            "at": self.at,
            "entry": self.entry,
            "origin": self.origin,
            "hashes": sorted(self.hashes),
        }
        try:
            write_private(self.path, orjson.dumps(said))
        except OSError as error:
            raise os_problem(error, f"writing {self.path}") from error

    def end(self) -> None:
        """It is done; a problem costs doing it again."""
        with suppress(OSError):
            self.path.unlink()
            sync_dir(self.path.parent)

    @classmethod
    def read(cls, path: Path) -> Begun:
        """Raises OSError, and as any broken document."""
        said = orjson.loads(read_plain(path, LARGEST_RECORD))
        if said["version"] != _VERSION:
            raise ValueError(f"it is of version {said['version']!r:.20}")
        return cls(
            path,
            SessionName.parse(said["session"]),
            float(said["at"]),
            said["entry"],
            said["origin"],
            frozenset(map(str, said["hashes"])),
        )


def begun(layout: Layout) -> Iterator[Begun]:
    """All that was begun and not ended, by whoever is at it or was killed."""
    try:
        paths = sorted(layout.forgetting.glob(f"[!.]*{_ENDING}"))
    except OSError as error:
        _log.warning("What is being forgotten cannot be read", problem=str(error))
        return
    for path in paths:
        try:
            yield Begun.read(path)
        except FileNotFoundError:
            continue  # it has just ended
        except (OSError, ValueError, LookupError, TypeError, BsdError) as error:
            _log.warning("What is being forgotten cannot be read", path=str(path), why=str(error))

"""Crash journals of `forget`, `bring-back` and redactions, from which a killed call is finished.

A journal is written before the first change and removed after the last one. It holds names, times
and hashes, but no content of a session. bsd reads a journal only if the file is bsd's own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bsd.core.errors import BsdError, Conflict, os_problem
from bsd.core.files import LARGEST_RECORD, read_ours, sync_dir, write_private
from bsd.core.layout import Layout, SessionName
from bsd.store.checked import moment, text, text_or_none

_VERSION = 1
_ENDING = ".json"
_ORIGIN = re.compile(r"[0-9a-f]{16}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_SHORT_HASH = 8  # hex digits: the minimum that a command accepts as the name of a secret
_REDACTED = re.compile(r"[0-9a-f]{8}")


def write_journal(path: Path, document: dict[str, Any]) -> None:
    """Write a journal durably; raises Unavailable, Forbidden."""
    try:
        write_private(path, orjson.dumps({"version": _VERSION, **document}))
    except OSError as error:
        raise os_problem(error, f"writing {path}") from error


def read_journal(layout: Layout, path: Path) -> Any:
    """Return the document of a journal; raises OSError, ValueError, LookupError, TypeError."""
    document = orjson.loads(read_ours(path, layout.root, LARGEST_RECORD))
    if document["version"] != _VERSION:
        raise ValueError(f"it is of version {document['version']!r:.20}")
    return document


def remove_journal(path: Path) -> None:
    """Remove a journal. If that fails, the call is finished again later, without any effect."""
    with suppress(OSError):
        path.unlink()
        sync_dir(path.parent)


@dataclass(frozen=True, slots=True)
class ForgetJournal:
    """The crash journal of one call of `forget`. `at`: when it began, epoch seconds."""

    path: Path
    session: SessionName
    at: float
    entry: str | None = None
    origin: str | None = None  # origin of the only snapshot to forget; None: all stored data
    hashes: frozenset[str] = frozenset()  # `sha256:…` of the stored lines of session or entry

    @classmethod
    def new(cls, layout: Layout, name: SessionName, at: float) -> ForgetJournal:
        """Return the journal of a new call, not yet written."""
        return cls(layout.forgetting / f"{secrets.token_hex(8)}{_ENDING}", name, at)

    def write(self) -> None:
        """Write the journal durably; raises Unavailable, Forbidden."""
        document = {
            "session": str(self.session),
            "at": self.at,
            "entry": self.entry,
            "origin": self.origin,
            "hashes": sorted(self.hashes),
        }
        write_journal(self.path, document)

    @classmethod
    def read(cls, layout: Layout, path: Path) -> ForgetJournal:
        """Read a journal; raises FileNotFoundError, Conflict, Forbidden, BsdError."""
        hint = "if a newer bsd wrote it, run that version; this one ignores the journal"
        with _reading(path, "`bsd archive forget`", hint):
            document = read_journal(layout, path)
            entry, origin = text_or_none(document["entry"]), text_or_none(document["origin"])
            hashes = frozenset(map(text, document["hashes"]))
            _refuse_odd(origin, hashes)
            session = SessionName.parse(text(document["session"]))
            return cls(path, session, moment(document["at"]), entry, origin, hashes)


@contextmanager
def _reading(path: Path, operation: str, hint: str) -> Iterator[None]:
    """Convert the errors of reading a journal; FileNotFoundError passes."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise os_problem(error, f"reading the journal {path}") from error
    except (ValueError, LookupError, TypeError, BsdError) as error:
        raise Conflict(
            f"the journal {path} of {operation} cannot be read: {error}", hint=hint
        ) from error


def _refuse_odd(origin: str | None, hashes: frozenset[str]) -> None:
    if origin is not None and not _ORIGIN.fullmatch(origin):
        raise ValueError(f"{origin!r:.40} is not the origin of a copy")
    if not all(map(_HASH.fullmatch, hashes)):
        raise ValueError("a hash is not valid")


def _refuse_no_hash(short: str) -> None:
    if not _REDACTED.fullmatch(short):
        raise ValueError(f"{short!r:.40} is not the hash of a secret")


def forget_journals(layout: Layout) -> Iterator[tuple[Path, ForgetJournal | BsdError]]:
    """Yield the journals of running and killed calls; for an unusable journal, the error."""
    for path in sorted(layout.forgetting.glob(f"[!.]*{_ENDING}")):
        try:
            yield path, ForgetJournal.read(layout, path)
        except FileNotFoundError:
            continue  # the call has just ended
        except BsdError as error:
            yield path, error


@dataclass(frozen=True, slots=True)
class RedactionJournal:
    """The crash journal of one redaction. `at`: when it began, epoch seconds.

    `hash`: the first 8 hex digits of the secret's hash, enough to name the secret in a command.
    """

    path: Path
    hash: str
    rule: str
    at: float
    sessions: tuple[SessionName, ...]

    @classmethod
    def new(
        cls, layout: Layout, hash: str, rule: str, at: float, sessions: Iterable[SessionName]
    ) -> RedactionJournal:
        """Return the journal of a new redaction, not yet written."""
        short = hash[:_SHORT_HASH]
        path = layout.redacting / f"{short}{_ENDING}"
        return cls(path, short, rule, at, tuple(sorted(sessions)))

    def write(self) -> None:
        """Write the journal durably; raises Unavailable, Forbidden."""
        names = [str(name) for name in self.sessions]
        document = {"hash": self.hash, "rule": self.rule, "at": self.at, "sessions": names}
        write_journal(self.path, document)

    @classmethod
    def read(cls, layout: Layout, path: Path) -> RedactionJournal:
        """Read a journal; raises FileNotFoundError, Conflict, Forbidden, BsdError."""
        hint = "`bsd secrets` lists the secrets that are left; then remove the journal"
        with _reading(path, "a redaction", hint):
            document = read_journal(layout, path)
            short = text(document["hash"])
            _refuse_no_hash(short)
            names = tuple(SessionName.parse(text(name)) for name in document["sessions"])
            return cls(path, short, text(document["rule"]), moment(document["at"]), names)


def redaction_journals(layout: Layout) -> Iterator[tuple[Path, RedactionJournal | BsdError]]:
    """Yield the journals of running and killed redactions; for an unusable journal, the error."""
    for path in sorted(layout.redacting.glob(f"[!.]*{_ENDING}")):
        try:
            yield path, RedactionJournal.read(layout, path)
        except FileNotFoundError:
            continue  # the call has just ended
        except BsdError as error:
            yield path, error

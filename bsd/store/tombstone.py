"""Tombstones: what a host has forgotten for good, so that the other hosts of a bucket forget it.

A tombstone has neither content nor a session's name: the session is known by the hash of the name
of its directory in the archive, its lines by their hashes. So tombstones are never encrypted, and a
host that can only upload obeys them too. `fleet/tombstones.py` publishes and obeys them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bsd.core.layout import Layout, SessionName
from bsd.store.checked import moment, text, text_or_none, truth

VERSION = 1
_MEMBERS = {"version", "id", "at", "store", "entry", "origins", "hashes", "lines"}
_ID = re.compile(r"[0-9a-f]{32}")
_STORE = re.compile(r"[0-9a-f]{64}")
_ORIGIN = re.compile(r"[0-9a-f]{16}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A session, some copies of it, one entry, or some lines, forgotten for good.

    Attributes:
        id: 32 hex digits.
        at: when it was forgotten, epoch seconds by the clock of the host that wrote it. Data that
            another host has stored since then stays.
        store: SHA-256 of the name of the session's directory in the archive (`store_hash`).
        entry: the forgotten entry; None: the whole session, or `lines`.
        origins: of the session and its copies; they tell it from another session of that name.
        hashes: `sha256:…` of lines: stored ones, and with `lines` also those of copies.
        lines: only the lines with these hashes are forgotten (a redaction).
    """

    id: str
    at: float
    store: str
    entry: str | None = None
    origins: frozenset[str] = frozenset()
    hashes: frozenset[str] = frozenset()
    lines: bool = False

    @classmethod
    def new(
        cls,
        layout: Layout,
        name: SessionName,
        at: float,
        *,
        entry: str | None = None,
        origins: Collection[str] = (),
        hashes: Collection[str] = (),
        lines: bool = False,
    ) -> Tombstone:
        """Return a new tombstone of a session of any host."""
        store, id_ = store_hash(layout.store_name(name)), secrets.token_hex(16)
        return cls(id_, at, store, entry, frozenset(origins), frozenset(hashes), lines)

    @property
    def is_of_session(self) -> bool:
        """Whether a whole session is forgotten, or a copy of one."""
        return self.entry is None and not self.lines

    def document(self) -> dict[str, Any]:
        """Return the tombstone for JSON."""
        return {
            "version": VERSION,
            "id": self.id,
            "at": self.at,
            "store": self.store,
            "entry": self.entry,
            "origins": sorted(self.origins),
            "hashes": sorted(self.hashes),
            "lines": self.lines,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Tombstone:
        """Read a document strictly; raises ValueError, LookupError or TypeError."""
        if document["version"] != VERSION:
            raise ValueError(f"it is of version {document['version']!r:.20}")
        if unknown := document.keys() - _MEMBERS:
            raise ValueError(f"it has unknown members: {', '.join(sorted(map(str, unknown)))}")
        return cls(
            id=_matching(_ID, document["id"]),
            at=moment(document["at"]),
            store=_matching(_STORE, document["store"]),
            entry=text_or_none(document["entry"]),
            origins=frozenset(_matching(_ORIGIN, each) for each in document["origins"]),
            hashes=frozenset(_matching(_HASH, each) for each in document["hashes"]),
            lines=truth(document["lines"]),
        )


def store_hash(store: str) -> str:
    """Return the SHA-256, in hex, by which tombstones know a session's directory in the archive."""
    return hashlib.sha256(store.encode()).hexdigest()


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not pattern.fullmatch(found := text(value)):
        raise ValueError(f"{found!r:.40} is not valid")
    return found

"""The façade that every door uses: open → plan → commit → audit (DESIGN §1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bsd.foundation.layout import Layout, SessionName
from bsd.foundation.pruning_config import ConfigService


class Status(StrEnum):
    """What became of one session; names the completed state."""

    EXTRACTED = "extracted"
    RESTORED = "restored"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    LEFT_ALONE = "left_alone"  # not ours to edit: foreign, version 1, moved to SQLite, …
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What was (or with `dry_run` would be) done to one session. Sizes are bytes of its file."""

    session: str
    status: Status
    dry_run: bool = False
    entries: int = 0
    values: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tokens_saved: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)  # SPEC §3: outcome → entries
    unavailable: Mapping[str, str] = field(default_factory=dict)  # `entry key` → why (restore-all)
    warnings: tuple[str, ...] = ()
    reason: str | None = None  # why it was left alone, busy or failed
    hint: str | None = None

    def as_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry for people: what it is, how big, what is out of it."""

    index: int
    id: str | None
    type: str
    size: int  # bytes of the line
    position: int | None  # message entries after it
    extracted: bool
    keys: tuple[str, ...]  # extracted keys
    extractable: bool | int | None  # `_extractable`, if set
    restored: str | None  # `_restored`, if set
    hash: str  # 6 hex digits of the content's SHA-256, longer on collision
    preview: str  # first 200 characters of its text

    def as_json(self) -> dict[str, Any]: ...


class Surgeon:
    """Does one thing to one session at a time, safely, for whoever asks.

    `actor` is written to audit and log; `wait` (seconds) is how long a busy session is waited for.
    """

    def __init__(
        self,
        layout: Layout,
        config: ConfigService,
        *,
        actor: str = "cli",
        wait: float = 30.0,
        quiet: float = 2.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None: ...

    def recover(self) -> list[Any]:
        """Finish or undo what an earlier process left in flight; call once at start."""
        ...

    def extract(
        self,
        name: SessionName,
        *,
        dry_run: bool = False,
        overrides: Mapping[str, Any] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SessionResult:
        """Extract all that is due in one session. `progress` gets bytes of the session done so far.

        Never raises for what concerns only this session's state: BUSY, LEFT_ALONE and FAILED are
        results with `reason` and `hint`. Raises NotFound, Forbidden, Invalid for a wrong name.
        """
        ...

    def restore(
        self, name: SessionName, entry: str, keys: list[str] | None = None
    ) -> dict[str, Any]:
        """Put an entry's values back; the answer is seed 001's. Raises NotFound, Invalid, Busy, Conflict."""
        ...

    def restore_all(
        self, name: SessionName, *, progress: Callable[[int], None] | None = None
    ) -> SessionResult:
        """Put everything back that was extracted from one session."""
        ...

    def set_extractable(
        self, name: SessionName, entry: str, value: bool | int | None
    ) -> dict[str, Any]:
        """Set an entry's `_extractable` (None removes it): {updated, entry_id, extractable, previous}."""
        ...

    def entries(
        self, name: SessionName, *, start: int = 0, limit: int | None = None
    ) -> Iterator[EntryView]:
        """The entries of a session from line `start` on, as they stand."""
        ...

    def context(self, name: SessionName) -> dict[str, Any]:
        """Seed 001's get_context: {session, total_entries, extracted_entries, extracted_ids,
        extractable_entries, size_bytes, extracted_size_bytes, last_extracted_at, entries: […]}."""
        ...

    def extracted_content(self, name: SessionName, entry: str) -> dict[str, Any]:
        """What was taken out of an entry, by key, without putting it back."""
        ...

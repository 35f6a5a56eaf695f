"""Is everything that was taken out still there, and nothing left in between (SPEC §7)?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str  # missing_file, corrupt_file, not_indexed, index_broken, in_flight, orphan_bytes, mode, unmarked_placeholder
    where: str  # session, entry or file
    message: str
    repaired: bool = False
    hint: str | None = None

    def as_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` looked at and found."""

    sessions: int
    placeholders: int
    files: int
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Nothing is wrong, or all of it has been repaired."""
        return all(finding.repaired for finding in self.findings)

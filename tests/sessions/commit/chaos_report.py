"""Report of a chaos test: counts, printed and written to the file that BSD_CHAOS_REPORT names."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsd.core.layout import SessionName
from bsd.sessions.commit.displaced import Recovered
from bsd.sessions.commit.protocol import CommitOutcome

# Read before the tests get an environment of their own.
_WANTED = os.environ.get("BSD_CHAOS_REPORT")


@dataclass
class Report:
    """Counts over all sessions of a test."""

    name: str
    commits: int = 0
    give_ups: Counter[str] = field(default_factory=Counter)
    drained_lines: int = 0
    late_lines: int = 0
    lines: int = 0
    sessions: int = 0
    longest_lease_ms: float = 0.0

    def noticed(self, session: SessionName, outcome: CommitOutcome) -> None:
        """Record an attempt to commit."""
        if outcome.committed:
            self.commits += 1
        else:
            self.give_ups[str(outcome.gave_up)] += 1
        self.drained_lines += outcome.drained_lines
        self.longest_lease_ms = max(self.longest_lease_ms, outcome.lease_held_s * 1000)

    def recovered(self, results: list[Recovered]) -> None:
        self.late_lines += sum(result.lines for result in results)

    def as_json(self) -> dict[str, Any]:
        return {
            "commits": self.commits,
            "give_ups": dict(self.give_ups),
            "drained_lines": self.drained_lines,
            "late_lines": self.late_lines,
            "lines": self.lines,
            "sessions": self.sessions,
            "longest_lease_ms": round(self.longest_lease_ms, 3),
        }

    def publish(self) -> None:
        """Print the report, and append it to the file of all reports if BSD_CHAOS_REPORT names a
        file.
        """
        sys.stdout.write(f"\nchaos, {self.name}: {json.dumps(self.as_json())}\n")
        if _WANTED:
            file = Path(_WANTED)
            # One line per test: several workers may write at once.
            with file.open("a") as stream:
                stream.write(json.dumps({"test": self.name, **self.as_json()}) + "\n")

"""Sums over replayed sessions, which can be written down between two portions of a replay.

Tokens are estimates and may be fractions. Money is US dollars; only calls whose cost is known with
and without bsd are added, so that both sums are about the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan

from bsd.planning.recorded import Recording
from bsd.planning.replay import Played, Timeline

_PARTS = 1000  # a deviation is counted in thousandths


@dataclass(slots=True)
class InputSums:
    """The input of requests."""

    tokens: float = 0.0
    read: float = 0.0  # from a cache
    written: float = 0.0  # to a cache
    cost: float = 0.0

    def add_calls(self, played: Played) -> None:
        """Add the calls of a session."""
        self.tokens += sum(played.tokens)
        self.read += sum(played.read)
        self.written += sum(played.written)
        self.cost += sum(cost for cost in played.cost if not isnan(cost))


@dataclass(slots=True)
class SettingSums(InputSums):
    """The same under one setting, with the effects of the setting."""

    cuts: dict[str, int] = field(default_factory=dict)  # by reason
    rewritten: float = 0.0
    left_values: int = 0
    left_tokens: float = 0.0
    wanted: int = 0
    wanted_tokens: float = 0.0

    def add(self, played: Played) -> None:
        """Add a session that was played under the setting."""
        self.add_calls(played)
        for cut in played.cuts:
            self.cuts[cut.timing.cause] = self.cuts.get(cut.timing.cause, 0) + 1
            self.rewritten += cut.rewritten
            self.left_values += cut.values
            self.left_tokens += cut.removed
        self.wanted += len(played.wanted)
        self.wanted_tokens += sum(tokens for _, _, tokens in played.wanted)

    @property
    def wanted_share(self) -> float:
        """Tokens that were wanted again, as a share of the tokens that left."""
        return self.wanted_tokens / self.left_tokens if self.left_tokens > 0 else 0.0


@dataclass(slots=True)
class SessionSums:
    """Sums over sessions: as recorded, without bsd, and under each setting."""

    settings: list[SettingSums]
    sessions: int = 0
    calls: int = 0
    priced_calls: int = 0
    recorded_calls: int = 0
    recorded_tokens: int = 0
    recorded_cost: float = 0.0
    recorded_priced: int = 0  # calls
    deviations: dict[int, int] = field(default_factory=dict)  # thousandths → calls
    without: InputSums = field(default_factory=InputSums)

    @classmethod
    def of(cls, settings: int) -> SessionSums:
        """Return empty sums for a number of settings."""
        return cls([SettingSums() for _ in range(settings)])

    def add(self, timeline: Timeline, without: Played, played: Sequence[Played]) -> None:
        """Add a session: without bsd, and under each setting."""
        self.sessions += 1
        self.calls += len(without.tokens)
        self.priced_calls += sum(not isnan(cost) for cost in without.cost)
        self.without.add_calls(without)
        self._add_recorded(timeline)
        for sums, one in zip(self.settings, played, strict=True):
            sums.add(one)

    def _add_recorded(self, timeline: Timeline) -> None:
        recording = timeline.recording
        for number in range(timeline.first, len(recording.calls)):
            usage = recording.calls[number].usage
            if usage is None:
                continue
            self.recorded_calls += 1
            self.recorded_tokens += usage.prompt
            cost = timeline.recorded_cost(number)
            if not isnan(cost):
                self.recorded_priced += 1
                self.recorded_cost += cost
        self._add_deviation(recording)

    def _add_deviation(self, recording: Recording) -> None:
        if (deviation := recording.deviation) is not None:
            part = min(round(deviation.median * _PARTS), _PARTS)
            self.deviations[part] = self.deviations.get(part, 0) + deviation.calls

    @property
    def deviation(self) -> float | None:
        """The median of the sessions' deviations, weighted by their calls; None: none is known."""
        half, passed = sum(self.deviations.values()) / 2, 0
        for part in sorted(self.deviations):
            passed += self.deviations[part]
            if passed >= half:
                return part / _PARTS
        return None

"""Sums over replayed sessions, which can be written down between two portions of a replay.

Tokens are estimates and may be fractions. Money is US dollars; only calls whose cost is known with
and without bsd are added, so that both sums are about the same calls.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter

from bsd.core.errors import Invalid
from bsd.planning.recorded import Recording
from bsd.planning.replay import Played
from bsd.planning.replay_timeline import Timeline

_Key = TypeVar("_Key")

_PARTS = 1000  # a deviation is counted in thousandths
_LARGEST = 1 << 20  # bytes of a state that is read
_MOST = 1e15  # no sum of sessions reaches it


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
        self.cost += _known(played)

    def plus_input(self, other: InputSums) -> None:
        """Add the input of other requests."""
        self.tokens += other.tokens
        self.read += other.read
        self.written += other.written
        self.cost += other.cost


@dataclass(slots=True)
class SettingSums(InputSums):
    """The same under one setting, with the effects of the setting."""

    cuts: dict[str, int] = field(default_factory=dict)  # by reason
    rewritten: float = 0.0
    left_values: int = 0
    left_tokens: float = 0.0
    wanted: int = 0
    wanted_tokens: float = 0.0
    worst: float | None = None  # the highest cost of a session, relative to its cost without bsd

    def add(self, played: Played, without: Played) -> None:
        """Add a session that was played under the setting and without bsd."""
        self.add_calls(played)
        if (cost := _known(without)) > 0:
            self._note_worst(_known(played) / cost)
        for cut in played.cuts:
            _count(self.cuts, {cut.timing.cause.value: 1})
            self.rewritten += cut.rewritten
            self.left_values += cut.values
            self.left_tokens += cut.removed
        self.wanted += len(played.wanted)
        self.wanted_tokens += sum(tokens for _, _, tokens in played.wanted)

    def plus(self, other: SettingSums) -> None:
        """Add the sums over other sessions."""
        self.plus_input(other)
        _count(self.cuts, other.cuts)
        self.rewritten += other.rewritten
        self.left_values += other.left_values
        self.left_tokens += other.left_tokens
        self.wanted += other.wanted
        self.wanted_tokens += other.wanted_tokens
        if other.worst is not None:
            self._note_worst(other.worst)

    def _note_worst(self, share: float) -> None:
        self.worst = share if self.worst is None else max(share, self.worst)


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
            sums.add(one, without)

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
            _count(self.deviations, {part: deviation.calls})

    def plus(self, other: SessionSums) -> None:
        """Add the sums over other sessions."""
        for sums, others in zip(self.settings, other.settings, strict=True):
            sums.plus(others)
        self.sessions += other.sessions
        self.calls += other.calls
        self.priced_calls += other.priced_calls
        self.recorded_calls += other.recorded_calls
        self.recorded_tokens += other.recorded_tokens
        self.recorded_cost += other.recorded_cost
        self.recorded_priced += other.recorded_priced
        _count(self.deviations, other.deviations)
        self.without.plus_input(other.without)

    @property
    def deviation(self) -> float | None:
        """The median of the sessions' deviations, weighted by their calls; None: none is known."""
        half, passed = sum(self.deviations.values()) / 2, 0
        for part in sorted(self.deviations):
            passed += self.deviations[part]
            if passed >= half:
                return part / _PARTS
        return None


@dataclass(slots=True)
class ReplayState:
    """What a replay of many sessions has found so far."""

    settings: int  # the number of settings
    programs: dict[str, SessionSums] = field(default_factory=dict)
    last: str | None = None  # the last session that was read
    read: int = 0  # bytes
    odd: dict[str, int] = field(default_factory=dict)  # words about odd input → how often
    models: dict[str, int] = field(default_factory=dict)  # without a known price → calls
    failed: list[tuple[str, str]] = field(default_factory=list)  # (session, reason)
    more_failed: int = 0  # further sessions that could not be read
    empty: int = 0  # sessions without a request to a model
    uncounted: int = 0  # sessions whose programs record no usage
    on_resume: int = 0  # sessions whose programs read the file only when they are resumed

    def add(
        self,
        program: str,
        timeline: Timeline,
        without: Played,
        played: list[Played],
        *,
        on_resume: bool,
    ) -> None:
        """Add a session of a program; `on_resume`: it reads the file only then."""
        sums = self.programs.setdefault(program, SessionSums.of(self.settings))
        sums.add(timeline, without, played)
        _count(self.odd, timeline.recording.notes)
        _count(self.models, timeline.unpriced())
        calls = timeline.recording.calls
        self.empty += not calls
        self.uncounted += bool(calls) and not timeline.tells
        self.on_resume += bool(calls) and on_resume

    def fail(self, session: str, reason: str, most: int) -> None:
        """Note a session that cannot be read; of more than `most`, only their number."""
        if len(self.failed) < most:
            self.failed.append((session, reason))
        else:
            self.more_failed += 1

    @property
    def sums(self) -> SessionSums:
        """The sums over all programs."""
        total = SessionSums.of(self.settings)
        for sums in self.programs.values():
            total.plus(sums)
        return total

    def dumps(self) -> str:
        """Return the state as text for a URL."""
        packed = zlib.compress(orjson.dumps(asdict(self), option=orjson.OPT_NON_STR_KEYS), 9)
        return urlsafe_b64encode(packed).decode()

    @classmethod
    def loads(cls, text: str, settings: int) -> ReplayState:
        """Read the output of `dumps`; raises Invalid."""
        with suppress(ValueError, zlib.error):
            plain = zlib.decompressobj().decompress(urlsafe_b64decode(text), _LARGEST)
            state = TypeAdapter(cls).validate_json(plain)
            counted = [len(sums.settings) for sums in state.programs.values()]
            is_sound = all(-1 < number < _MOST for number in _numbers(orjson.loads(plain)))
            if is_sound and all(count == settings for count in (state.settings, *counted)):
                return state
        raise Invalid("this is not a cursor of this replay", hint="begin without a cursor")


def _known(played: Played) -> float:
    """Return the cost of the calls whose price is known."""
    return sum(cost for cost in played.cost if not isnan(cost))


def _numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a JSON value."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


def _count(counts: dict[_Key, int], more: Mapping[_Key, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count

"""Facts stored, found, confirmed and pruned in any order, compared with a slow, obvious model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.formatting import LIFETIMES
from bsd.memory import actions
from bsd.memory.memory import Memory
from tests.memory.memories import DAY, HOUR, Clock, rows, store

_COUNT = 6


@dataclass
class Life:
    """The expected properties of a fact."""

    decay_class: str
    base: float
    confidence: float
    confirmed: int
    expires: int | None

    def anew(self, now: int) -> None:
        lifetime = LIFETIMES[self.decay_class]
        self.confirmed, self.confidence = now, self.base
        self.expires = None if lifetime is None else now + lifetime

    def fade(self, now: int) -> None:
        if self.expires is None or self.expires < now or self.base <= 0.1:
            return
        late = now - (self.confirmed + (self.expires - self.confirmed) * 0.75)
        if late > 0:
            self.confidence = self.base
            for _ in range(1 + int(late // HOUR)):
                self.confidence *= 0.5


class Step(NamedTuple):
    later: int  # seconds
    what: str
    whom: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 1, HOUR - 1, HOUR, 5 * HOUR, 20 * HOUR, 10 * DAY]),
        st.sampled_from(["prune", "prune", "hard", "soft", "recall", "lookup", "look", "confirm"]),
        st.integers(0, _COUNT - 1),
    ),
    min_size=20,
    max_size=40,
)
kinds = st.lists(
    st.tuples(st.sampled_from(list(LIFETIMES)), st.sampled_from([1.0, 0.9, 0.5, 0.2, 0.1, 0.05])),
    min_size=_COUNT,
    max_size=_COUNT,
)


class World:
    """The memory and its model, by the ids of facts."""

    def __init__(self, path: Path, kinds: list[tuple[str, float]]) -> None:
        self.clock = Clock()
        self.memory = Memory(path, clock=self.clock)
        self.lives: dict[str, Life] = {}
        self.names: list[str] = []
        for number, (name, confidence) in enumerate(kinds):
            fact = store(
                self.memory,
                f"fact number{number}",
                entity=f"e{number}",
                decay_class=name,
                confidence=confidence,
            )
            life = Life(name, confidence, confidence, 0, None)
            life.anew(int(self.clock.now))
            self.lives[fact.id] = life
            self.names.append(fact.id)

    def do(self, step: Step) -> None:
        self.clock.now += step.later
        act: dict[str, Callable[[Step], None]] = {"confirm": self._confirm}
        act |= dict.fromkeys(("prune", "hard", "soft"), self._prune)
        act.get(step.what, self._find)(step)

    def _prune(self, step: Step) -> None:
        hard, soft, now = step.what != "soft", step.what != "hard", int(self.clock.now)
        actions.prune(self.memory, hard=hard, soft=soft)
        if hard:
            self._keep(lambda life: life.expires is None or life.expires >= now)
        if soft:
            for life in self.lives.values():
                life.fade(now)
            self._keep(lambda life: life.confidence >= 0.1)

    def _keep(self, good: Callable[[Life], bool]) -> None:
        self.lives = {name: life for name, life in self.lives.items() if good(life)}

    def _find(self, step: Step) -> None:
        now, refresh = int(self.clock.now), step.what != "look"
        if step.what == "lookup":
            found = [fact.id for fact in actions.lookup(self.memory, f"E{step.whom}").results]
        else:
            recalled = actions.recall(self.memory, f"number{step.whom}", refresh=refresh).results
            found = [one.id for one in recalled]
        life = self.lives.get(self.names[step.whom])
        seen = life is not None and (life.expires is None or life.expires > now)
        assert found == ([self.names[step.whom]] if seen else [])
        if life is not None and seen and refresh and life.decay_class in {"stable", "active"}:
            life.anew(now)

    def _confirm(self, step: Step) -> None:
        if life := self.lives.get(self.names[step.whom]):
            actions.confirm(self.memory, self.names[step.whom])
            life.base = 1.0
            life.anew(int(self.clock.now))

    def check(self) -> None:
        kept = rows(
            self.memory.path, "SELECT id, confidence, last_confirmed_at, expires_at FROM facts"
        )
        assert {row[0]: row[1:] for row in kept} == {
            name: (life.confidence, life.confirmed, life.expires)
            for name, life in self.lives.items()
        }


@given(kinds=kinds, steps=steps)
@settings(max_examples=5, deadline=None)
def test_every_life_is_as_the_model_has_it(
    kinds: list[tuple[str, float]], steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(tmp_path_factory.mktemp("lives") / "facts.db", kinds)
    with world.memory:
        for step in steps:
            world.do(step)
            world.check()

"""How long each decay class lives, and which ones live on when they are recalled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bsd.foundation.decay_classes import LIFETIMES, REFRESHED
from bsd.foundation.errors import Invalid
from bsd.foundation.spelling import meant
from bsd.memory.fact import Fact
from bsd.memory.schema import MILLISECONDS


@dataclass(frozen=True, slots=True)
class Classes:
    """The seed's classes and the user's; lifetimes in seconds, None for ever."""

    lifetimes: Mapping[str, int | None] = field(default_factory=lambda: dict(LIFETIMES))
    refreshed: frozenset[str] = frozenset(REFRESHED)

    def check(self, name: str) -> str:
        """Return `name` if there is such a class; raises Invalid."""
        if name not in self.lifetimes:
            raise Invalid(
                f"there is no decay class {name!r}{meant(name, self.lifetimes)}",
                hint=f"one of {', '.join(self.lifetimes)}; [memory.ttl] in bsd.toml adds others",
            )
        return name

    def expiry(self, name: str, moment: int) -> int | None:
        """When a fact of this class that was confirmed at `moment` expires (epoch seconds)."""
        lifetime = self.lifetimes[name]
        return None if lifetime is None else moment + lifetime

    def renewed(self, fact: Fact, moment: int) -> int | None:
        """When a fact expires that is confirmed at `moment` (epoch seconds).

        One of a class that is no longer known lives as long again as it did.
        """
        if fact.decay_class in self.lifetimes:
            return self.expiry(fact.decay_class, moment)
        if fact.expires_at is None or fact.last_confirmed_at is None:
            return fact.expires_at
        lifetime = fact.expires_at - fact.last_confirmed_at
        return moment + lifetime if 0 < lifetime < MILLISECONDS else fact.expires_at

    def living_on(self) -> dict[str, int | None]:
        """Lifetimes of the classes that a recall refreshes."""
        return {name: self.lifetimes[name] for name in self.lifetimes if name in self.refreshed}

"""When facts expire and how they fade, as SQL over sets of them.

A fact fades by its age and not by how often somebody looks: past 75 % of the time between its last
confirmation and its expiry, its confidence is

    base · 0.5^k    with k = 1 + the full hours since then

`base` is what the confidence was before. So hourly ticks, one tick after two days of downtime and
forty ticks in a minute come to the same. With whole seconds, and all of it times four, the moment
is exact: `now` is past 75 % when 4·now > confirmed + 3·expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bsd.memory.database import Database
from bsd.memory.protected import unprotected
from bsd.memory.schema import LARGEST

FAINTEST = 0.1  # below this a fact is forgotten
_QUARTER_HOURS = 4 * 3600  # an hour, as seconds are counted here
_USUAL_HALVINGS = 3
_MOST_HALVINGS = 62  # what a shift of SQLite's integers can take; no confidence survives as many

# The confidence from which a fact fades; somebody who knows no base may have raised it meanwhile.
BASE = "MAX(confidence, COALESCE(bsd_base_confidence, confidence))"
# Just as the index `bsd_facts_fading` has it, or it is not used.
_MOMENT = "last_confirmed_at + 3 * expires_at"
_HALVINGS = (
    f"MIN(1 + CAST((4 * :now - ({_MOMENT})) / {_QUARTER_HOURS} AS INTEGER), {_MOST_HALVINGS})"
)

_EXPIRED = "expires_at IS NOT NULL AND expires_at < :now"
# `+`: of two indexes, the one that finds next to nothing. One that expires this very second fades
# as well: it is deleted a second later, and a tick at either moment shall find the same.
# Texts are no times, and the half of one is nothing: what is no number is left as it is.
_NUMBERS = " AND ".join(
    f"+{name} < {LARGEST}" for name in ("expires_at", "last_confirmed_at", "confidence")
)
_STILL_THERE = (
    f"expires_at IS NOT NULL AND +expires_at >= :now AND {_NUMBERS} AND {BASE} > {FAINTEST}"
)
_PAST = f"{_MOMENT} <= 4 * :now - 1 AND {_STILL_THERE}"
_WITHIN = f"{_MOMENT} > :since AND {_MOMENT} <= :until"
_BEGINNING = -(1 << 62)
# Whatever its class, and although it may never expire (as the plugin has it).
_FAINT = f"confidence < {FAINTEST}"


def expired(db: Database) -> str:
    """The condition of facts that a hard prune at `:now` deletes."""
    return f"{_EXPIRED}{unprotected(db)}"


def faint(db: Database) -> str:
    """The condition of facts that soft decay at `:now` deletes."""
    return f"{_FAINT}{unprotected(db)}"


@dataclass(frozen=True, slots=True)
class Fading:
    """Facts that have been halved equally often, as conditions of SQL."""

    faded: str  # the confidence that is left
    now: int
    since: int  # the moment of each is later, and not later than `until`
    until: int
    others: str  # than those that are protected
    mostly_goes: bool = False  # then it need not be updated before

    @property
    def when(self) -> str:
        return f"{_WITHIN} AND {_STILL_THERE}{self.others}"

    @property
    def parameters(self) -> dict[str, int]:
        return {"now": self.now, "since": self.since, "until": self.until}

    @property
    def stays(self) -> str:
        """It is to be changed, and stays."""
        return f"{self.when} AND {self.faded} >= {FAINTEST} AND confidence <> {self.faded}"

    @property
    def goes(self) -> str:
        """It has faded away; after the update it is among the faint."""
        return f"{self.when} AND {self.faded} < {FAINTEST}"

    @property
    def update(self) -> str:
        """Those that go as well: to look for them before would cost as much again."""
        return (
            f"UPDATE facts SET bsd_base_confidence = {BASE}, confidence = {self.faded}"  # noqa: S608
            f" WHERE {self.when} AND (confidence <> {self.faded} OR {_FAINT})"
        )


def fading(now: int, others: str = "") -> Iterator[Fading]:
    """All facts past 75 % but the protected ones, an hour's worth each and then the rest, disjoint.

    No confidence up to 1 survives more than three halvings: for all that usually is there, the
    divisor is a constant.
    """
    until = 4 * now - 1
    for count in range(1, _USUAL_HALVINGS + 1):
        since = 4 * now - _QUARTER_HOURS * count
        yield Fading(f"({BASE} / {1 << count})", now, since, until, others)
        until = since
    faded = f"({BASE} / (1 << {_HALVINGS}))"
    yield Fading(faded, now, _BEGINNING, until, others, mostly_goes=True)


def in_parts(db: Database, each: Fading, size: int) -> Iterator[Fading]:
    """The same facts, the youngest first, about `size` at a time: as many as began to fade then."""
    while True:
        since = db.value(
            f"SELECT {_MOMENT} FROM facts WHERE expires_at IS NOT NULL AND {_WITHIN}"  # noqa: S608
            f" ORDER BY {_MOMENT} DESC LIMIT 1 OFFSET {size}",
            each.parameters,
        )
        if since is None:
            yield each
            return
        # Of more than `size` that began at the same moment, none waits.
        since = min(since, each.until - 1)
        yield replace(each, since=since)
        each = replace(each, until=since)


def count_expired(db: Database, now: int) -> int:
    """How many facts a hard prune would delete."""
    return _count(db, expired(db), {"now": now})


def fade(db: Database, each: Fading) -> int:
    """Update these facts, within a change; returns how many of them stay."""
    updated = db.run(each.update, each.parameters)
    # Few are faint; to look through all that have just been updated would cost a quarter as much.
    gone = f"SELECT COUNT(*) FROM facts INDEXED BY bsd_facts_faint WHERE {_FAINT} AND {each.goes}"  # noqa: S608
    return updated - int(db.value(gone, each.parameters))


def count_fading(db: Database, now: int) -> tuple[int, int]:
    """How many facts soft decay would leave with less confidence, and how many it would delete."""
    sets = list(fading(now, unprotected(db)))
    stay = sum(_count(db, each.stays, each.parameters) for each in sets)
    go = sum(_count(db, each.goes, each.parameters) for each in sets)
    # Those that fade and stay are above the faintest afterwards, whatever they are now.
    others = _count(db, f"{faint(db)} AND NOT COALESCE({_PAST}, 0)", {"now": now})
    return stay, go + others


def _count(db: Database, where: str, parameters: dict[str, int]) -> int:
    return int(db.value(f"SELECT COUNT(*) FROM facts WHERE {where}", parameters))  # noqa: S608

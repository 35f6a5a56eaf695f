"""Finding facts: by words, ranked as the plugin does, and by entity and key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from bsd.memory.database import Database, Row, storable
from bsd.memory.decay import BASE
from bsd.memory.fact import SHOWN, Fact, RecalledFact

_WEEK = 7 * 86_400
_WORDS, _FRESHNESS, _CONFIDENCE = 0.6, 0.25, 0.15  # what each weighs in a score
_SHORTEST_WORD = 2
_MOST_WORDS = 1000  # in one query: FTS5's time grows with their square
_QUOTES = str.maketrans("", "", "'\"")


@dataclass(frozen=True, slots=True)
class WantedFacts:
    """Which facts count; times in epoch seconds."""

    entity: str | None = None
    tag: str | None = None
    include_expired: bool = False
    include_superseded: bool = False
    as_of: int | None = None  # what held then

    def where(self) -> str:
        """The condition, with the parameters of `parameters`."""
        terms = []
        if not self.include_expired:
            terms.append("(facts.expires_at IS NULL OR facts.expires_at > :now)")
        if self.as_of is not None:
            terms.append("COALESCE(facts.valid_from, facts.created_at) <= :as_of")
            terms.append("(facts.valid_until IS NULL OR facts.valid_until > :as_of)")
        elif not self.include_superseded:
            terms.append("facts.superseded_at IS NULL")
        if self.entity is not None:
            terms.append("facts.entity = :entity COLLATE NOCASE")
        if self.tag is not None:
            terms.append("instr(',' || facts.tags || ',', ',' || :tag || ',')")
        return " AND ".join(terms) or "1"

    def parameters(self, now: int) -> dict[str, object]:
        return {
            "now": now,
            "as_of": self.as_of,
            "entity": None if self.entity is None else storable(self.entity),
            "tag": None if self.tag is None else storable(self.tag).strip().lower(),
        }


def expression(query: str) -> str:
    """What FTS5 is asked: any of the words of two characters or more."""
    words = storable(query).translate(_QUOTES).split()
    long = (f'"{word}"' for word in words if len(word) >= _SHORTEST_WORD)
    return " OR ".join(islice(long, _MOST_WORDS))


def search(
    db: Database, query: str, wanted: WantedFacts, limit: int, now: int
) -> list[RecalledFact]:
    """The facts that hold any of the words, the best first."""
    words = expression(query)
    if not words or limit <= 0:
        return []
    rows = db.all(
        f"SELECT {SHOWN}, facts_fts.rank AS rank FROM facts_fts"  # noqa: S608 - our own words
        " JOIN facts ON facts.rowid = facts_fts.rowid"
        f" WHERE facts_fts MATCH :words AND {wanted.where()}"
        " ORDER BY facts_fts.rank LIMIT :most",
        {**wanted.parameters(now), "words": words, "most": 2 * limit},
    )
    if not rows:
        return []
    found = _scored(rows, now)
    found.sort(key=lambda one: (one.score, _said_at(one.fact)), reverse=True)
    return found[:limit]


def _scored(rows: Sequence[Row], now: int) -> list[RecalledFact]:
    ranks = [row["rank"] for row in rows]
    best = min(ranks)
    spread = (max(ranks) - best) or 1.0
    return [
        RecalledFact(
            fact,
            _WORDS * (1 - (rank - best) / spread)
            + _FRESHNESS * freshness(fact.expires_at, now)
            + _CONFIDENCE * fact.confidence,  # nothing counts as nothing
        )
        for rank, fact in zip(ranks, map(Fact.of, rows), strict=True)
    ]


def freshness(expires_at: int | None, now: int) -> float:
    """1 for a fact that lives for a week or more, less and less until it expires, then 0."""
    if expires_at is None:
        return 1.0
    return max(0.0, min(1.0, (expires_at - now) / _WEEK))


def _said_at(fact: Fact) -> int:
    return fact.created_at if fact.source_date is None else fact.source_date


def lookup(
    db: Database, entity: str, key: str | None, wanted: WantedFacts, limit: int, now: int
) -> list[Fact]:
    """What is known about an entity, whatever its case; the surest and newest first."""
    also = "" if key is None else " AND facts.key = :key COLLATE NOCASE"
    rows = db.all(
        f"SELECT {SHOWN} FROM facts WHERE facts.entity = :entity COLLATE NOCASE{also}"  # noqa: S608
        f" AND {wanted.where()} ORDER BY facts.confidence DESC,"
        " COALESCE(facts.source_date, facts.created_at) DESC, facts.rowid DESC LIMIT :most",
        {
            **wanted.parameters(now),
            "entity": storable(entity),
            "key": None if key is None else storable(key),
            "most": limit,
        },
    )
    return [Fact.of(row) for row in rows]


def refresh(
    db: Database, ids: Sequence[str], living_on: Mapping[str, int | None], now: int
) -> None:
    """Note that these facts were recalled; those of classes that live on begin anew.

    `living_on`: lifetimes by class, in seconds; None for ever.
    """
    chosen = "id IN (SELECT value FROM json_each(:ids))"
    told = {"ids": json.dumps(list(ids)), "now": now}
    with db.change():  # `+`: not by the index of classes, each of which is large
        for name, lifetime in living_on.items():
            db.run(
                "UPDATE facts SET last_confirmed_at = :now, expires_at = :now + :lifetime,"  # noqa: S608
                f" confidence = {BASE}, bsd_base_confidence = NULL"
                f" WHERE {chosen} AND +decay_class = :class",
                {**told, "class": name, "lifetime": lifetime},
            )
        db.run(
            "UPDATE facts SET recall_count = recall_count + 1, last_accessed = :now"  # noqa: S608
            f" WHERE {chosen}",
            told,
        )


def by_id(db: Database, ids: Sequence[str]) -> dict[str, Fact]:
    """Facts by their ids, those that are there."""
    rows = db.all(
        f"SELECT {SHOWN} FROM facts WHERE id IN (SELECT value FROM json_each(?))",  # noqa: S608
        (json.dumps(list(ids)),),
    )
    return {row["id"]: Fact.of(row) for row in rows}

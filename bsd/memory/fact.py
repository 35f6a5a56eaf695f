"""A fact as callers see it, and finding facts: by words, ranked as the plugin does, and by entity.

SQLite keeps anything in any column, and others write there, too: what is read is made what its
column should hold.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bsd.core.definition import Answer, contract
from bsd.core.errors import NotFound
from bsd.memory.database import Database, Row, storable
from bsd.memory.decay import BASE
from bsd.memory.schema import COLUMNS


@dataclass(frozen=True, slots=True)
class Fact(Answer):
    """A fact: the columns of the database. Times are epoch seconds."""

    id: str
    text: str
    category: str
    importance: float = field(metadata=contract("0 to 1"))
    entity: str | None = field(metadata=contract("Who or what it is about"))
    key: str | None = field(metadata=contract("Which property of the entity"))
    value: str | None = field(metadata=contract("The value of that property"))
    source: str
    created_at: int
    decay_class: str
    expires_at: int | None = field(metadata=contract("null: never"))
    last_confirmed_at: int | None
    confidence: float = field(metadata=contract("0 to 1; it fades with time"))
    summary: str | None
    source_date: int | None = field(metadata=contract("When it was said, if not then"))
    tags: str | None = field(metadata=contract("Small, with commas"))
    recall_count: int
    last_accessed: int | None
    superseded_at: int | None
    superseded_by: str | None = field(metadata=contract("The id of the fact that took its place"))
    valid_from: int | None
    valid_until: int | None
    supersedes_id: str | None = field(metadata=contract("The id of the fact whose place it took"))

    @classmethod
    def of(cls, row: Row) -> Fact:
        return cls(*(read(row[name]) for name, read in zip(FIELDS, _READERS, strict=True)))


FIELDS = tuple(Fact.__dataclass_fields__)
SHOWN = ", ".join(f"facts.{name}" for name in FIELDS)  # what a SELECT for `Fact.of` names


def text_of(value: object) -> str | None:
    """A text, whatever it was written as; None for nothing."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def whole_number(value: object) -> int | None:
    """A number without its fraction; None for what is none."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) else None


def _share(value: object) -> float | None:
    good = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if good else None  # type: ignore[arg-type]


def _reader(name: str) -> Callable[[object], Any]:
    """What makes of a value what the column should hold: its default, if it is nothing of it."""
    kind, _, rest = COLUMNS[name].partition(" ")
    read: Callable[[object], Any]
    read = {"TEXT": text_of, "REAL": _share, "INTEGER": whole_number}[kind]
    if not rest:
        return read
    default: Any = rest.partition("DEFAULT ")[2].strip("'")
    if kind != "TEXT":
        default = read(float(default or 0))
    return lambda value: default if (got := read(value)) is None else got


_READERS = tuple(_reader(name) for name in FIELDS)


@dataclass(frozen=True, slots=True)
class RecalledFact(Answer):
    """A fact that was searched for, and how well it fits."""

    fact: Fact = field(metadata=contract(inline=True))
    score: float = field(metadata=contract("0 to 1"))

    def as_json(self) -> dict[str, Any]:
        return Answer.as_json(self) | {"score": round(self.score, 6)}


@dataclass(frozen=True, slots=True)
class StoredFact(Answer):
    """A fact that was stored, or the one of the same text that was there before."""

    created: bool = field(metadata=contract("False: one of the same text was there before"))
    fact: Fact = field(metadata=contract(inline=True))


# --- finding facts ---

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


def note_recalled(
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


# --- keeping facts ---

_HINT = "`bsd memory recall` and `bsd memory lookup` show ids"


def twin(db: Database, row: Mapping[str, Any]) -> Fact | None:
    """A live fact of the same text, entity, key and value, other than the one superseded."""
    found = db.one(
        f"SELECT {SHOWN} FROM facts WHERE normalized_hash = :normalized_hash"  # noqa: S608
        " AND IFNULL(entity, '') = IFNULL(:entity, '') AND IFNULL(key, '') = IFNULL(:key, '')"
        " AND IFNULL(value, '') = IFNULL(:value, '')"
        " AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > :created_at)"
        " AND id IS NOT :supersedes_id LIMIT 1",
        row,
    )
    return None if found is None else Fact.of(found)


def reclassify(db: Database, fact: Fact, row: Mapping[str, Any]) -> Fact:
    """Let a fact have the class of its twin, and begin anew with it, within a change."""
    db.run(
        "UPDATE facts SET decay_class = :decay_class, expires_at = :expires_at,"
        " last_confirmed_at = :created_at WHERE id = :twin",
        {**row, "twin": fact.id},
    )
    return existing(db, fact.id)


def insert(db: Database, row: Mapping[str, Any]) -> Fact:
    """Write a row within a change; raises NotFound if what it supersedes is not there."""
    old = row["supersedes_id"]
    if old is not None:
        existing(db, old)
    marks = ", ".join(f":{name}" for name in row)
    db.run(f"INSERT INTO facts ({', '.join(row)}) VALUES ({marks})", row)  # noqa: S608
    if old is not None:
        db.run(
            "UPDATE facts SET superseded_at = :created_at, superseded_by = :id,"
            " valid_until = :valid_from WHERE id = :supersedes_id",
            row,
        )
        db.run(
            "INSERT INTO memory_links (id, source_fact_id, target_fact_id, link_type, created_at)"
            " VALUES (?, ?, ?, 'SUPERSEDES', ?)",
            (str(uuid.uuid4()), row["id"], old, row["created_at"]),
        )
    return existing(db, row["id"])


def existing(db: Database, id: str) -> Fact:
    """One fact; raises NotFound."""
    row = db.one(f"SELECT {', '.join(FIELDS)} FROM facts WHERE id = ?", (storable(id),))  # noqa: S608
    if row is None:
        raise NotFound(f"there is no fact {id}", hint=_HINT)
    return Fact.of(row)

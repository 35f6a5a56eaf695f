"""The class `Fact`, and the queries that find and store facts.

SQLite accepts any type in any column, and the plugin writes to the same database. Therefore
`fact_from_row` converts each value to the type of its column.
"""

import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import Field, PlainSerializer

from bsd.core.errors import NotFound
from bsd.memory.database import Database, Row, storable
from bsd.memory.decay import BASE
from bsd.memory.schema import COLUMNS, MILLISECONDS

Share = Annotated[float, Field(description="0 to 1.", ge=0, le=1)]
Moment = Annotated[int, Field(ge=0, le=MILLISECONDS)]  # larger numbers would be milliseconds


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact with the columns of the database. Times are epoch seconds."""

    id: str
    text: str
    category: str
    importance: Annotated[float, Field(description="0 to 1")]
    entity: Annotated[str | None, Field(description="The person or thing it is about")]
    key: Annotated[str | None, Field(description="The property of the entity")]
    value: Annotated[str | None, Field(description="The value of that property")]
    source: str
    created_at: int
    decay_class: str
    expires_at: Annotated[int | None, Field(description="null: never")]
    last_confirmed_at: int | None
    confidence: Annotated[float, Field(description="0 to 1; decreases with time")]
    summary: str | None
    source_date: Annotated[
        int | None, Field(description="When it was said, if not at `created_at`")
    ]
    tags: Annotated[str | None, Field(description="In lower case, separated by commas")]
    recall_count: int
    last_accessed: int | None
    superseded_at: int | None
    superseded_by: Annotated[str | None, Field(description="The id of the fact that replaced it")]
    valid_from: int | None
    valid_until: int | None
    supersedes_id: Annotated[str | None, Field(description="The id of the fact that it replaced")]


def _rounded(score: float) -> float:
    return round(score, 6)


@dataclass(frozen=True, slots=True)
class RecalledFact(Fact):
    """A fact found by a search, with its score."""

    score: Annotated[
        float, PlainSerializer(_rounded, return_type=float), Field(description="0 to 1")
    ]


FIELDS = tuple(field.name for field in fields(Fact))
SHOWN = ", ".join(f"facts.{name}" for name in FIELDS)  # the columns that `fact_from_row` needs

_F = TypeVar("_F", bound=Fact)


def extend(kind: type[_F], fact: Fact, **more: Any) -> _F:
    """Return `fact` as an instance of `kind`, with the additional fields `more`."""
    return kind(**{name: getattr(fact, name) for name in FIELDS}, **more)


def fact_from_row(row: Row) -> Fact:
    """Return the fact in a row with the columns `SHOWN`."""
    return Fact(*(read(row[name]) for name, read in zip(FIELDS, _READERS, strict=True)))


def text_of(value: object) -> str | None:
    """Return the value of a text column as a string; None for NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def whole_number(value: object) -> int | None:
    """Return a number without its fraction; None for values that are not finite numbers."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _reader(name: str) -> Callable[[object], Any]:
    """Return a function that converts values of a column; other types become the default."""
    kind, _, rest = COLUMNS[name].partition(" ")
    read: Callable[[object], Any]
    read = {"TEXT": text_of, "REAL": _real, "INTEGER": whole_number}[kind]
    if not rest:
        return read
    default: Any = rest.partition("DEFAULT ")[2].strip("'")
    if kind != "TEXT":
        default = read(float(default or 0))
    return lambda value: default if (converted := read(value)) is None else converted


_READERS = tuple(_reader(name) for name in FIELDS)


# --- finding facts ---

_WEEK = 7 * 86_400  # seconds
_WORDS, _FRESHNESS, _CONFIDENCE = 0.6, 0.25, 0.15  # weights in a score
_SHORTEST_WORD = 2
_MOST_WORDS = 1000  # per query, because FTS5's time grows with the square of the number
_QUOTES = str.maketrans("", "", "'\"")


@dataclass(frozen=True, slots=True)
class FactFilter:
    """Conditions for the facts that a search or look-up returns; times in epoch seconds."""

    entity: Annotated[str | None, Field(description="Only facts about this.")] = None
    tag: Annotated[str | None, Field(description="Only facts with this tag.")] = None
    include_expired: Annotated[bool, Field(description="Include expired facts.")] = False
    include_superseded: Annotated[
        bool, Field(description="Include facts that newer facts have replaced.")
    ] = False
    as_of: Annotated[
        Moment | None, Field(description="Facts that held at this time (epoch seconds).")
    ] = None

    def where(self) -> str:
        """Return the SQL condition; `parameters` returns its parameters."""
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
    """Return the FTS5 expression that matches any word of at least two characters."""
    words = storable(query).translate(_QUOTES).split()
    long = (f'"{word}"' for word in words if len(word) >= _SHORTEST_WORD)
    return " OR ".join(islice(long, _MOST_WORDS))


def search(db: Database, query: str, only: FactFilter, limit: int, now: int) -> list[RecalledFact]:
    """Return up to `limit` facts that contain any of the words, best matches first."""
    words = expression(query)
    if not words or limit <= 0:
        return []
    rows = db.all(
        f"SELECT {SHOWN}, facts_fts.rank AS rank FROM facts_fts"  # noqa: S608 - our own words
        " JOIN facts ON facts.rowid = facts_fts.rowid"
        f" WHERE facts_fts MATCH :words AND {only.where()}"
        " ORDER BY facts_fts.rank LIMIT :most",
        {**only.parameters(now), "words": words, "most": 2 * limit},
    )
    if not rows:
        return []
    ranks = [row["rank"] for row in rows]
    best = min(ranks)
    spread = (max(ranks) - best) or 1.0
    scored = []
    for rank, fact in zip(ranks, map(fact_from_row, rows), strict=True):
        score = _WORDS * (1 - (rank - best) / spread)
        score += _FRESHNESS * freshness(fact.expires_at, now) + _CONFIDENCE * fact.confidence
        scored.append((score, _said_at(fact), fact))
    scored.sort(key=lambda each: each[:2], reverse=True)
    return [extend(RecalledFact, fact, score=score) for score, _, fact in scored[:limit]]


def freshness(expires_at: int | None, now: int) -> float:
    """Return 1 for a fact that lives at least a week more, falling to 0 when it expires."""
    if expires_at is None:
        return 1.0
    return max(0.0, min(1.0, (expires_at - now) / _WEEK))


def _said_at(fact: Fact) -> int:
    return fact.created_at if fact.source_date is None else fact.source_date


def lookup(
    db: Database, entity: str, key: str | None, only: FactFilter, limit: int, now: int
) -> list[Fact]:
    """Return the facts about an entity, by confidence, then newest first; case-insensitive."""
    also = "" if key is None else " AND facts.key = :key COLLATE NOCASE"
    rows = db.all(
        f"SELECT {SHOWN} FROM facts WHERE facts.entity = :about COLLATE NOCASE{also}"  # noqa: S608
        f" AND {only.where()} ORDER BY facts.confidence DESC,"
        " COALESCE(facts.source_date, facts.created_at) DESC, facts.rowid DESC LIMIT :most",
        {
            **only.parameters(now),
            "about": storable(entity),
            "key": None if key is None else storable(key),
            "most": limit,
        },
    )
    return [fact_from_row(row) for row in rows]


def note_recalled(
    db: Database, ids: Sequence[str], lifetimes: Mapping[str, int | None], now: int
) -> None:
    """Count a recall of these facts, and renew those whose class is in `lifetimes`.

    `lifetimes`: seconds by class, for the classes that a recall renews; None: for ever.
    """
    chosen = "id IN (SELECT value FROM json_each(:ids))"
    parameters = {"ids": json.dumps(list(ids)), "now": now}
    with db.change():  # `+` prevents the use of the class index, as each class has many facts
        for name, lifetime in lifetimes.items():
            db.run(
                "UPDATE facts SET last_confirmed_at = :now, expires_at = :now + :lifetime,"  # noqa: S608
                f" confidence = {BASE}, bsd_base_confidence = NULL"
                f" WHERE {chosen} AND +decay_class = :class",
                {**parameters, "class": name, "lifetime": lifetime},
            )
        db.run(
            "UPDATE facts SET recall_count = recall_count + 1, last_accessed = :now"  # noqa: S608
            f" WHERE {chosen}",
            parameters,
        )


def by_id(db: Database, ids: Sequence[str]) -> dict[str, Fact]:
    """Return the existing facts among these ids, by id."""
    rows = db.all(
        f"SELECT {SHOWN} FROM facts WHERE id IN (SELECT value FROM json_each(?))",  # noqa: S608
        (json.dumps(list(ids)),),
    )
    return {row["id"]: fact_from_row(row) for row in rows}


# --- storing facts ---


def twin(db: Database, row: Mapping[str, Any]) -> Fact | None:
    """Return a live fact with the same text, entity, key and value; not one that `row` replaces."""
    found = db.one(
        f"SELECT {SHOWN} FROM facts WHERE normalized_hash = :normalized_hash"  # noqa: S608
        " AND IFNULL(entity, '') = IFNULL(:entity, '') AND IFNULL(key, '') = IFNULL(:key, '')"
        " AND IFNULL(value, '') = IFNULL(:value, '')"
        " AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > :created_at)"
        " AND id IS NOT :supersedes_id LIMIT 1",
        row,
    )
    return None if found is None else fact_from_row(found)


def reclassify(db: Database, fact: Fact, row: Mapping[str, Any]) -> Fact:
    """Give a fact the class of its twin `row`, as if it were confirmed now.

    Must be called within a transaction.
    """
    db.run(
        "UPDATE facts SET decay_class = :decay_class, expires_at = :expires_at,"
        " last_confirmed_at = :created_at WHERE id = :twin",
        {**row, "twin": fact.id},
    )
    return existing(db, fact.id)


def insert(db: Database, row: Mapping[str, Any]) -> Fact:
    """Insert a row within a transaction; raises NotFound if the fact it supersedes is missing."""
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
    """Return the fact with this id; raises NotFound."""
    row = db.one(f"SELECT {SHOWN} FROM facts WHERE id = ?", (storable(id),))  # noqa: S608
    if row is None:
        hint = "`bsd memory recall` and `bsd memory lookup` show ids"
        raise NotFound(f"there is no fact {id}", hint=hint)
    return fact_from_row(row)

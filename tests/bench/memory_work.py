"""Compare the memory with the plugin's own SQL, on the same facts.

`python -m tests.bench.memory_work DIRECTORY COUNT` makes a database of the plugin with COUNT facts,
copies it, and opens the copy with bsd. It prints as JSON, by operation, the seconds of bsd and of
the plugin's SQL; for the hourly run also the seconds of the bare statements (`Bare`). The facts are
spread evenly over the lives of their classes, the oldest first, as if stored over time; every hour
as many begin to fade as in the hour before. For the last row a tenth begins to fade within one
hour, as after a large import.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bsd.memory import actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from tests.memory import plugin

NOW = 1_800_000_000
HOUR, DAY = 3600, 86_400
_STORES = 2000
_QUERIES = 40
_LIFETIMES = {"stable": 90 * DAY, "active": 14 * DAY}
_HOURS = 3  # until the first that fade are deleted, and then again
_WORDS = [hashlib.sha256(bytes([n % 256, n // 256])).hexdigest()[:7] for n in range(4000)]


@dataclass
class Clock:
    """A clock of which only the hours count."""

    now: int = NOW

    def __call__(self) -> float:
        return self.now


def main(directory: Path, count: int) -> None:
    theirs, ours, least = (directory / f"{name}.db" for name in ("theirs", "ours", "bare"))
    chance = random.Random(1)
    _fill(theirs, count, chance)
    for path in (ours, least):
        shutil.copyfile(theirs, path)
    clock = Clock()
    with (
        Memory(ours, clock=clock) as memory,
        plugin.plugin(theirs) as db,
        closing(Bare(least)) as bare,
    ):
        found: dict[str, Any] = {"opening": {"ours": _seconds(lambda: memory.note("opened", 1))}}
        found |= _store_and_recall(memory, db, chance)
        found["hourly run, nothing to delete yet"] = _hours(memory, db, clock, bare)
        found["hourly run"] = _hours(memory, db, clock, bare)
        found["dry run"] = {
            "ours": _seconds(lambda: actions.prune(memory, dry_run=True)),
            # which counts the expired only
            "theirs": _seconds(lambda: db.execute(plugin.COUNT_EXPIRED, {"now": NOW}).fetchone()),
        }
        for path in (ours, theirs):
            _link(path, count // 10)
        found["hourly run, one in ten linked"] = _hours(memory, db, clock)
        for path in (ours, theirs, least):
            _let_many_fade(path, clock.now, count // 10)
        found["soft decay of one in ten"] = _hours(memory, db, clock, bare)
        found["left"] = actions.stats(memory).facts
        found["left there"] = db.execute("SELECT COUNT(*) FROM facts").fetchone()[0]
    print(json.dumps(found))


def _store_and_recall(
    memory: Memory, db: sqlite3.Connection, chance: random.Random
) -> dict[str, Any]:
    queries = [" ".join(chance.choices(_WORDS[:200], k=3)) for _ in range(_QUERIES)]
    texts = [_text(chance) for _ in range(_STORES)]
    return {
        "store": {
            "ours": _seconds(lambda: [actions.store(memory, NewFact(text)) for text in texts])
            / _STORES,
            "theirs": _seconds(lambda: _store_all(db, texts)) / _STORES,
        },
        "recall": {
            "ours": _median(lambda query: actions.recall(memory, query, refresh=False), queries),
            "theirs": _median(lambda query: _search(db, query), queries),
        },
        "recall and refresh": {
            "ours": _median(partial(actions.recall, memory), queries),
            "theirs": _median(lambda query: _search_and_refresh(db, query), queries),
        },
    }


class Bare:
    """The least that SQLite must do, given the facts that fade and the facts that go.

    It uses the plugin's tables and indexes without bsd's, and an index of words that the plugin's
    trigger keeps up to date, with bsd's settings and in changes as short as bsd's. The words of a
    fading fact do not change, so its update needs no work in the index.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("synchronous=NORMAL", "foreign_keys=ON", "temp_store=MEMORY"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("PRAGMA cache_size=-65536")
        self._db.execute("DROP TRIGGER facts_au")

    def close(self) -> None:
        self._db.close()

    def hour(self, now: int) -> float:
        """Return the CPU seconds of the statements of one hour."""
        fades = f"SELECT rowid, confidence FROM facts WHERE {plugin.FADES}"
        rows = self._db.execute(fades, {"now": now}).fetchall()
        stay = [row for row, confidence in rows if confidence * 0.5 >= 0.1]
        go = [row for row, confidence in rows if confidence * 0.5 < 0.1]
        return self._do("UPDATE facts SET confidence = confidence * 0.5", stay, 50_000) + self._do(
            "DELETE FROM facts", go, 5000
        )

    def _do(self, statement: str, rows: list[int], batch: int) -> float:
        seconds = 0.0
        for first in range(0, len(rows), batch):
            told = json.dumps(rows[first : first + batch])
            seconds += _cpu(partial(self._change, statement, told))
        return seconds

    def _change(self, statement: str, told: str) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(f"{statement} WHERE rowid IN (SELECT value FROM json_each(?))", (told,))
        self._db.execute("COMMIT")


def _hours(
    memory: Memory, db: sqlite3.Connection, clock: Clock, bare: Bare | None = None
) -> dict[str, float]:
    """Return the CPU seconds of an hourly run, as the median of several.

    Disk time is left out: both write the same rows to the same pages, and other users' disk load
    would be measured too.
    """
    seconds: dict[str, list[float]] = {"ours": [], "theirs": [], "bare": []}
    for _ in range(_HOURS):
        clock.now += HOUR
        seconds["ours"].append(_cpu(partial(actions.prune, memory)))
        seconds["theirs"].append(_cpu(lambda: _hourly(db, clock.now)))
        if bare:
            seconds["bare"].append(bare.hour(clock.now))
    return {name: statistics.median(each) for name, each in seconds.items() if each}


def _link(path: Path, count: int) -> None:
    """Links between facts as the plugin makes them; none of its indexes covers their ends."""
    chance = random.Random(2)
    with closing(sqlite3.connect(path)) as db, db:
        ids = [row[0] for row in db.execute("SELECT id FROM facts ORDER BY rowid")]
        db.executemany(
            "INSERT INTO memory_links (id, source_fact_id, target_fact_id, link_type, created_at)"
            " VALUES (?, ?, ?, 'RELATED_TO', ?)",
            ((str(number), *chance.choices(ids, k=2), NOW) for number in range(count)),
        )


def _let_many_fade(path: Path, now: int, count: int) -> None:
    """Make the oldest facts pass three quarters of their lives within the next hour, no others.

    So no fact is deleted, and the row measures soft decay alone.
    """
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA synchronous=OFF")
        # Only while this is prepared.
        triggers = db.execute("SELECT sql FROM sqlite_master WHERE name = 'facts_au'").fetchall()
        db.execute("DROP TRIGGER IF EXISTS facts_au")
        db.execute("UPDATE facts SET confidence = 1.0, expires_at = :now * 2", {"now": now})
        db.execute(
            "UPDATE facts SET"
            " last_confirmed_at = :now + rowid % 3600 - 30 * 86400,"
            " expires_at = :now + rowid % 3600 + 10 * 86400"
            " WHERE rowid IN (SELECT rowid FROM facts ORDER BY rowid LIMIT :count)",
            {"now": now, "count": count},
        )
        for (sql,) in triggers:
            db.execute(sql)


def _fill(path: Path, count: int, chance: random.Random) -> None:
    with plugin.plugin(path) as db:
        plugin.create(db, "links")
        db.execute("PRAGMA synchronous=OFF")
        db.execute("BEGIN")
        rows = _rows(count, chance)
        names = (
            *("id", "text", "created_at", "decay_class", "last_confirmed_at", "expires_at"),
            *("category", "entity", "key", "value"),
        )
        marks = ", ".join("?" * len(names))
        db.executemany(f"INSERT INTO facts ({', '.join(names)}) VALUES ({marks})", rows)
        db.execute("COMMIT")


def _rows(count: int, chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """No fact has begun to fade yet."""
    made = []
    for _ in range(count):
        name = chance.choice(("stable", "active"))
        made.append((NOW - chance.randrange(_LIFETIMES[name] * 3 // 4), name))
    for confirmed, name in sorted(made):
        yield (
            *(str(uuid.UUID(int=chance.getrandbits(128))), _text(chance), confirmed, name),
            *(confirmed, confirmed + _LIFETIMES[name], "fact", chance.choice(_WORDS)),
            *(chance.choice(_WORDS), " ".join(chance.choices(_WORDS, k=3))),
        )


def _text(chance: random.Random) -> str:
    return " ".join(chance.choices(_WORDS, k=20))


def _store_all(db: sqlite3.Connection, texts: list[str]) -> None:
    """The plugin looks for the same text, and then stores."""
    for text in texts:
        _store(db, text)


def _store(db: sqlite3.Connection, text: str) -> None:
    digest = hashlib.sha256(text.lower().encode()).hexdigest()
    db.execute("SELECT id FROM facts WHERE id = ?", (digest,)).fetchone()
    plugin.insert(
        db,
        id=str(uuid.uuid4()),
        text=text,
        created_at=NOW,
        decay_class="stable",
        last_confirmed_at=NOW,
        expires_at=NOW + 90 * DAY,
        normalized_hash=digest,
    )


def _search(db: sqlite3.Connection, query: str) -> list[Any]:
    words = " OR ".join(f'"{word}"' for word in query.split())
    return db.execute(plugin.SEARCH, {"words": words, "now": NOW, "most": 10}).fetchall()


def _search_and_refresh(db: sqlite3.Connection, query: str) -> None:
    for row in _search(db, query)[:5]:
        db.execute(plugin.REFRESH, {"now": NOW, "id": row[0]})


def _hourly(db: sqlite3.Connection, now: int) -> None:
    for statement in (plugin.PRUNE_EXPIRED, plugin.DECAY):
        db.execute(statement, {"now": now})
    db.execute(plugin.DELETE_FAINT)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _median(work: Callable[[str], object], queries: list[str]) -> float:
    return statistics.median(_seconds(partial(work, query)) for query in queries)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

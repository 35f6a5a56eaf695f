"""The catalogue at scale: `python -m tests.bench.fleet_scale`, or `make fleet-scale`.

Simulates hosts, sessions and entries with a vocabulary in which words are as frequent as in texts
(Zipf), writes them into a PostgreSQL of its own, and measures searches, pages and writing.
FLEET_ENTRIES changes their number.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import psycopg

from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.connection import connected
from bsd.fleet.catalogue.migrating import require_writable
from bsd.fleet.catalogue.queries import open_catalogue
from bsd.fleet.catalogue.words import for_index
from bsd.fleet.catalogue.writing import CatalogueWriter
from bsd.fleet.host import HostDirectory
from bsd.fleet.rows import EntryFacts, SessionFacts
from bsd.fleet.session_rows import RowsPart, Watermark
from tests.servers.postgres import Postgres, running

ENTRIES = int(os.environ.get("FLEET_ENTRIES", "5_000_000"))
HOSTS, SESSIONS = 100, 10_000
MONTHS = 24
_WORDS, _NAMES = 100_000, 30_000
_NOW = time.time()
# What contrib/docs/catalogue.md recommends for a server with 4 GB.
SETTINGS = {
    "shared_buffers": "1GB",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "8GB",
    "effective_cache_size": "3GB",
    "random_page_cost": "1.1",
    "checkpoint_timeout": "15min",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum_naptime": "20s",
    "max_connections": 30,
}
_TOOLS = ("bash", "read", "edit", "write", "grep", "glob", "web_fetch", "task")
_MODELS = ("claude-opus-4-5", "claude-sonnet-4-5", "gpt-5.1-codex", "gemini-3-pro")


class Texts:
    """Made-up texts: `common` words with Zipf's frequencies, and names of files and symbols."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        letters = "etaoinshrdlucmfwygpbvkxqjz"
        self.words = [_spelled(n, letters) for n in range(_WORDS)]
        self._sums = list(accumulate(1 / (n + 2.7) for n in range(_WORDS)))
        self.names = [f"{self.words[n % 9000]}_{n:x}" for n in range(_NAMES)]

    def text(self, count: int) -> str:
        top, sums, pick = self._sums[-1], self._sums, self._chance.random
        found = [self.words[bisect(sums, pick() * top)] for _ in range(count)]
        found.append(self.names[int(_NAMES * pick() ** 2)])
        return " ".join(found)


def _spelled(number: int, letters: str) -> str:
    text = ""
    number += 30
    while number:
        number, digit = divmod(number, 26)
        text += letters[digit]
    return text


def sessions() -> Iterator[tuple[int, SessionFacts, list[EntryFacts]]]:
    """Yield sessions, host by host, each with its rows."""
    chance = random.Random(7)
    texts = Texts(chance)
    each = ENTRIES // SESSIONS
    for number in range(SESSIONS):
        begin = _NOW - chance.random() * MONTHS * 30.4 * 86400
        rows = list(
            _rows(number, max(5, int(each * chance.uniform(0.4, 1.6))), begin, chance, texts)
        )
        facts = SessionFacts(
            agent=f"claude-code:-home-ada-project-{number % 300}",
            session=f"{number:08x}-0000-4000-8000-{number:012x}",
            program="claude-code",
            title=texts.text(8),
            directory=f"/home/ada/projects/project-{number % 300}",
            parent=None,
            created=begin,
            updated=rows[-1].time,
            size=sum(row.size for row in rows),
            lines=len(rows),
            models=(_MODELS[number % 4],),
            calls=sum(row.model is not None for row in rows),
            cost=sum(row.cost or 0.0 for row in rows),
            saved=sum(row.saved for row in rows),
        )
        yield number * HOSTS // SESSIONS, facts, rows


def _rows(
    session: int, count: int, begin: float, chance: random.Random, texts: Texts
) -> Iterator[EntryFacts]:
    """Yield a session's rows: prompts, answers with calls, and results of tools."""
    at = begin
    for line in range(count):
        at += chance.expovariate(1 / 20)
        kind = line % 10
        is_call, is_result = kind in {1, 3, 5, 7}, kind in {2, 4, 6, 8}
        role = "user" if kind == 0 or is_result else "assistant"
        words = 60 if kind == 0 else 90 if kind == 9 else 12 if is_call else 0
        size = int(chance.lognormvariate(7.5, 1.2))
        extracted = is_result and size > 3000
        digest = hashlib.blake2b(b"%d %d" % (session, line), digest_size=32).digest()
        yield EntryFacts(
            line=line,
            digest=digest[:16],
            entry=f"{digest[:4].hex()}-0000-4000-8000-{session:06x}{line:06x}",
            time=min(at, _NOW),
            role=role,
            tool=_TOOLS[(session + line // 2) % 8] if is_call or is_result else None,
            size=size,
            tokens=size // 4,
            model=_MODELS[session % 4] if is_call or kind == 9 else None,
            provider="anthropic" if is_call or kind == 9 else None,
            input_tokens=50 if is_call or kind == 9 else None,
            output_tokens=400 if is_call or kind == 9 else None,
            cache_read_tokens=60_000 if is_call or kind == 9 else None,
            cache_write_tokens=900 if is_call or kind == 9 else None,
            cost=0.05 if is_call or kind == 9 else None,
            extracted_at=at + 3600 if extracted else None,
            extracted_size=size if extracted else 0,
            saved=size - 400 if extracted else 0,
            stored=digest if extracted else None,
            text=texts.text(words) if words else None,
        )


def write(settings: FleetSettings) -> tuple[int, float]:
    """Write all sessions as their hosts do; return the rows, and the seconds in the writer."""
    rows, seconds = 0, 0.0
    with connected(settings) as connection:
        require_writable(connection, settings)
        writer, now = None, -1
        for host, facts, entries in sessions():
            begin = time.perf_counter()
            if host != now or writer is None:
                if writer is not None:
                    writer.flush()
                writer, now = (
                    CatalogueWriter(connection, HostDirectory(f"host{host:03}", f"{host:08x}")),
                    host,
                )
            mark = Watermark((1, host, facts.size, 0, 0), facts.size, len(entries), b"g" * 32, "{}")
            part = RowsPart(0, entries, mark, more=False, fresh=False)
            writer.add(SessionName(facts.agent, facts.session), facts, part, stale=False)
            rows += len(entries)
            seconds += time.perf_counter() - begin
            if host and host % 10 == 0 and host != getattr(write, "told", None):
                write.told = host  # type: ignore[attr-defined]
                print(
                    f"  {host} hosts, {rows:,} entries, {rows / seconds:,.0f} entries/s", flush=True
                )
        begin = time.perf_counter()
        if writer is not None:
            writer.flush()
    return rows, seconds + time.perf_counter() - begin


_COLUMNS = (
    "time, session, line, size, tokens, digest, input_tokens, output_tokens, cache_read_tokens,"
    " cache_write_tokens, extracted_size, saved, cost, extracted_at, entry, role, tool, model,"
    " provider, stored, words"
)


def compare_with_copy(server: Postgres, count: int) -> tuple[float, float]:
    """Return entries per second: of the writer, and of COPY of the same rows into the same tables.

    Both begin with empty tables. COPY gets whole rows with their tsvectors, which PostgreSQL has
    made before, in one statement.
    """
    settings = FleetSettings(host="a", database=server.new_database())
    taken, total = [], 0
    for _, facts, entries in sessions():
        taken.append((facts, entries))
        total += len(entries)
        if total >= count:
            break
    with connected(settings) as connection:
        require_writable(connection, settings)
        begin = time.perf_counter()
        writer = CatalogueWriter(connection, HostDirectory("a", "00000000"))
        for facts, entries in taken:
            mark = Watermark((1, 1, facts.size, 0, 0), facts.size, len(entries), b"g" * 32, "{}")
            part = RowsPart(0, entries, mark, more=False, fresh=False)
            writer.add(SessionName(facts.agent, facts.session), facts, part, stale=False)
        writer.flush()
        ours = total / (time.perf_counter() - begin)
    with psycopg.connect(settings.database or "", autocommit=True) as connection:
        with connection.cursor().copy(
            f"COPY (SELECT {_COLUMNS} FROM bsd.entries) TO STDOUT"
        ) as copy:
            data = b"".join(copy)
        connection.execute("TRUNCATE bsd.entries")
        begin = time.perf_counter()
        with connection.cursor().copy(f"COPY bsd.entries ({_COLUMNS}) FROM STDIN") as copy:
            copy.write(data)
        plain = total / (time.perf_counter() - begin)
    return ours, plain


_COUNT = "SELECT count(*) FROM bsd.entries WHERE words @@"


def percentiles(name: str, calls: list[Callable[[], Any]]) -> None:
    """Print the median and the 95th percentile of the calls' times."""
    taken = []
    for call in calls:
        begin = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begin))
    taken.sort()
    median, high = taken[len(taken) // 2], taken[int(0.95 * (len(taken) - 1))]
    worst = f"worst {taken[-1]:.1f} ms of {len(taken)}"
    print(f"{name}: median {median:.1f} ms, p95 {high:.1f} ms, {worst}", flush=True)


def ask(server: Postgres, settings: FleetSettings) -> None:
    chance = random.Random(3)
    texts = Texts(chance)
    ranks = {
        "up to 10,000 hits": range(2500, 60_000, 700),
        "100,000 hits and more": range(0, 60, 2),
    }
    with open_catalogue(settings) as catalogue:
        catalogue.hosts()
        for name, places in ranks.items():
            words = [for_index(texts.words[rank]) or "" for rank in places]
            counts = [
                server.execute(f"{_COUNT} to_tsquery('simple', '{word}')", settings.database)[0][0]
                for word in words[:: max(1, len(words) // 8)]
            ]
            print(f"words with {name}: {counts} hits")
            percentiles(f"search, {name}", [partial(catalogue.search, word) for word in words])
            percentiles(
                f"search on one host, {name}",
                [partial(catalogue.search, word, host="host042") for word in words[:30]],
            )
        percentiles(
            "search for a file's name",
            [partial(catalogue.search, texts.names[n]) for n in range(0, _NAMES, 400)],
        )
        percentiles(
            "search for two words",
            [
                partial(catalogue.search, f"{texts.words[a]} {texts.words[a + 37]}")
                for a in range(100, 3000, 60)
            ],
        )
        percentiles("sessions", [catalogue.sessions] * 50)
        percentiles("sessions of a host", [lambda: catalogue.sessions(host="host042")] * 50)
        percentiles(
            "sessions in a directory",
            [lambda: catalogue.sessions(directory="/home/ada/projects/project-7")] * 50,
        )
        percentiles("hosts", [catalogue.hosts] * 20)


def sizes(server: Postgres, settings: FleetSettings, rows: int) -> None:
    parts = server.execute(
        "SELECT replace(i.relname, c.relname, ''), sum(pg_relation_size(i.oid))::bigint"
        " FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid"
        " JOIN pg_index x ON x.indrelid = c.oid JOIN pg_class i ON i.oid = x.indexrelid"
        " WHERE h.inhparent = 'bsd.entries'::regclass GROUP BY 1 ORDER BY 2 DESC",
        settings.database,
    )
    heap = server.execute(
        "SELECT sum(pg_table_size(inhrelid))::bigint FROM pg_inherits"
        " WHERE inhparent = 'bsd.entries'::regclass",
        settings.database,
    )[0][0]
    print(f"bytes per entry: rows {heap / rows:.0f}", end="")
    print("".join(f", index{name} {size / rows:.0f}" for name, size in parts), end="")
    total = heap + sum(size for _, size in parts)
    print(f"; in all {total / rows:.0f} ({total / 2**30:.2f} GB)")


def main() -> None:
    print(f"{HOSTS} hosts, {SESSIONS:,} sessions, {ENTRIES:,} entries in {MONTHS} months")
    with running(**SETTINGS) as server:
        print(server.execute("SELECT version()")[0][0])
        ours, plain = compare_with_copy(server, min(ENTRIES, 200_000))
        print(f"writing: {ours:,.0f} entries/s; COPY {plain:,.0f} entries/s; {ours / plain:.2f}")
        settings = FleetSettings(host="bench", database=server.new_database())
        rows, seconds = write(settings)
        print(f"written: {rows:,} entries in {seconds:.0f} s, {rows / seconds:,.0f} entries/s")
        begin = time.perf_counter()
        server.execute("VACUUM ANALYZE", settings.database)
        print(f"VACUUM ANALYZE: {time.perf_counter() - begin:.0f} s")
        sizes(server, settings, rows)
        ask(server, settings)


if __name__ == "__main__":
    main()

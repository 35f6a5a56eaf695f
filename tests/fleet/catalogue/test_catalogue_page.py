"""The queries of contrib/docs/catalogue.md, forgetting, and the commands."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.forgetting import forget_rows, obey_tombstones
from bsd.store.tombstone import Tombstone
from tests.fleet.catalogue.conftest import MakeMember
from tests.servers.postgres import Postgres
from tests.session_files import Clock, conversation, entry, make_caller, sample, write

pytestmark = pytest.mark.servers

_PAGE = Path(__file__).parents[3] / "contrib" / "docs" / "catalogue.md"
S1, S2 = SessionName("main", "s1"), SessionName("main", "s2")


def test_the_ten_questions_have_answers(member: MakeMember) -> None:
    host = member()
    path = host.layout.agents / "main" / "sessions" / "s1.jsonl"
    # As if the session were of the last hour.
    path.write_bytes(sample(6))
    make_caller(host.layout, Clock()).extract(S1)
    write(host.layout, conversation(2), S2)
    host.ingest()
    host.ask(
        "SELECT bsd.make_partition(now()::date), bsd.make_partition((now() - interval '1 h')::date)"
    )
    host.ask("UPDATE bsd.entries SET time = now() - interval '1 minute'")
    host.ask("UPDATE bsd.entries SET extracted_at = now() WHERE extracted_at IS NOT NULL")
    host.ask("UPDATE bsd.hosts SET behind_files = 3, behind_seconds = 60")
    queries = re.findall(r"```sql\n(SELECT.*?;)\n```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(queries) == 10
    for query in queries:
        assert host.ask(query), query
    # Each column of the tables is described.
    for table, column in host.ask(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'bsd'"
        " AND table_name IN ('sessions', 'entries', 'hosts')"
    ):
        assert f"`{column}`" in _PAGE.read_text(encoding="utf-8"), (table, column)


def test_forgotten_words_are_in_no_file_of_the_database(
    member: MakeMember, postgres: Postgres
) -> None:
    one, two = member("alpha", "aaaaaaaa"), member("beta", "bbbbbbbb")
    for host in (one, two):
        lines = [*conversation(1), entry(9, "user", "Xylophonium geheimnisvoll", title="x")]
        write(host.layout, [conversation(0)[0], entry(50, "user", "Kaleidoskopium"), *lines], S1)
        write(host.layout, lines, S2)
        host.ingest()
    # The word is found before, so that its absence means something.
    one.ask("VACUUM ANALYZE")
    one.ask("CHECKPOINT")
    assert _files_with(postgres, one.settings, b"xylophonium")
    done = forget_rows(one.settings, session=S1, entry="e9", hashes=())
    assert (done.entries, done.sessions, done.left) == (2, 0, ())
    tombstone = Tombstone.new(one.layout, S2, time.time())
    old = Tombstone.new(one.layout, S1, 0.0, hashes=("sha256:" + "ab" * 32,))
    done = obey_tombstones(one.settings, [old, tombstone])
    assert (done.sessions, done.left) == (2, ())
    forget_rows(one.settings, session=S1, entry="e50", hashes=(b"x" * 32,))
    one.ask("CHECKPOINT")
    for word in (b"xylophonium", b"Xylophonium", b"kaleidoskopium", b"Kaleidoskopium"):
        assert not _files_with(postgres, one.settings, word), word
    assert one.ask("SELECT title FROM bsd.sessions") == [(None,), (None,)]
    # Each host reads the session again, and writes what is still in it.
    write(one.layout, conversation(1), S1)
    (one.layout.agents / "main" / "sessions" / "s2.jsonl").unlink()
    one.ingest()
    assert [row for row in one.entries() if row[0] == "alpha"] == one.fresh()


def test_rows_that_an_older_transaction_still_sees_are_named(
    member: MakeMember, postgres: Postgres
) -> None:
    host = member()
    write(host.layout, [*conversation(1), entry(9, "user", "Xylophonium")], S1)
    host.ingest()
    import psycopg

    with psycopg.connect(host.settings.database or "") as older:
        older.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        older.execute("SELECT 1 FROM pg_class")
        done = forget_rows(host.settings, session=S1, entry="e9", hashes=())
        host.ask("CHECKPOINT")
        assert _files_with(postgres, host.settings, b"xylophonium")
    (entries,) = [each for each in done.left if each.startswith("bsd.entries_")]
    assert "still sees 1 of the rows" in entries
    for each in done.left:
        host.ask(each[each.index("VACUUM") :])
    host.ask("CHECKPOINT")
    assert not _files_with(postgres, host.settings, b"xylophonium")


def _files_with(server: Postgres, settings: FleetSettings, word: bytes) -> list[str]:
    (number,) = server.execute(
        "SELECT oid::text FROM pg_database WHERE datname = current_database()", settings.database
    )[0]
    files = (server.directory / "data" / "base" / number).iterdir()
    return [path.name for path in files if word in path.read_bytes()]

"""Rows of hosts in the catalogue: what changed is written, once, and can be found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bsd.core.errors import Invalid, NotFound
from bsd.core.layout import SessionName
from bsd.fleet.catalogue.ingest import Behind
from bsd.fleet.catalogue.queries import open_catalogue
from bsd.maintenance import indexing
from tests.fleet.catalogue.conftest import FleetMember, MakeMember
from tests.servers.postgres import Postgres  # noqa: F401 - tests with a server share a process
from tests.session_files import Clock, conversation, entry, jsonl, make_caller, sample, write

pytestmark = pytest.mark.servers

S1, S2, S3 = (SessionName("main", f"s{n}") for n in (1, 2, 3))


def _question(number: int, words: str, **more: object) -> dict[str, object]:
    return entry(number, "user", words, **more)


def test_changes_are_written_once(member: MakeMember, monkeypatch: pytest.MonkeyPatch) -> None:
    host = member()
    path = write(host.layout, conversation(3), S1)
    write(host.layout, [*conversation(0), _question(9, "Zebras über Äcker; data_base.py")], S2)
    first = host.ingest(behind=Behind(3, 1000, 60.0))
    assert (first.sessions, first.more, first.failed) == (2, False, ())
    assert first.rows == len(host.entries())
    assert host.entries() == host.fresh()

    again = host.ingest()
    assert (again.sessions, again.rows) == (0, 0)

    with path.open("ab") as stream:
        stream.write(jsonl(_question(20, "an appended quagga")))
    assert (host.ingest().rows, host.entries()) == (1, host.fresh())

    # Extraction changes old lines; only their rows are written.
    old = {row[4]: row[9] for row in host.entries() if row[3] == "s1"}
    caller = make_caller(host.layout, Clock())
    caller.extract(S1)
    changed = host.ingest()
    now = {row[4]: row[9] for row in host.entries() if row[3] == "s1"}
    assert changed.rows == sum(old[line] != now[line] for line in old) > 0
    assert host.entries() == host.fresh()
    assert host.ask("SELECT sum(saved)::int > 0 FROM bsd.savings_by_hour") == [(True,)]

    # Lines vanish; a huge session is read in parts.
    write(host.layout, [*conversation(2), _question(30, "kept")], S1)
    monkeypatch.setattr(indexing, "PART_BYTES", 700)
    assert host.ingest().rows > 0
    assert host.entries() == host.fresh()


def test_interrupted_runs_go_on(member: MakeMember, monkeypatch: pytest.MonkeyPatch) -> None:
    host = member()
    write(host.layout, conversation(20), S1)
    write(host.layout, conversation(5), S2)
    host.ingest()
    # Both are rewritten, and each run ends after the first part.
    for name, results in ((S1, 15), (S2, 9)):
        write(host.layout, [*conversation(results), _question(99, "the end")], name)
    monkeypatch.setattr(indexing, "PART_BYTES", 2000)
    runs = 0
    while host.ingest(seconds=0).more:
        runs += 1
        assert runs < 100
    assert runs > 5
    assert host.entries() == host.fresh()
    assert host.ask("SELECT count(*) FROM bsd.watermarks WHERE stale") == [(0,)]


def test_search(member: MakeMember) -> None:
    host, other = member(), member("beta", "bbbbbbbb")
    day = "2026-11-{:02}T10:00:00Z"
    for number, each in enumerate((host, other)):
        lines = [_question(n, f"Zebra number{n} héllo", timestamp=day.format(n)) for n in (1, 5, 9)]
        write(each.layout, [*conversation(0)[:1], *lines], S1)
        write(each.layout, [*conversation(0)[:1], _question(1, "src/data_base.py 検索")], S2)
        write(each.layout, [*conversation(1), _question(50 + number, "only zebras here")], S3)
        each.ingest()
    with open_catalogue(host.settings) as catalogue:

        def found(words: str, **more: object) -> list[tuple[str, str, int]]:
            return [
                (hit.host, hit.session, hit.line)
                for hit in catalogue.search(words, **more).results  # type: ignore[arg-type]
            ]

        assert len(found("zebra")) == 6
        assert [line for *_, line in found("zebra", host="alpha")] == [3, 2, 1]  # newest first
        assert len(found("zebr*")) == 8
        assert found("HELLO NUMBER5 zebra") == [("beta", "main/s1", 2), ("alpha", "main/s1", 2)]
        assert len(found('"number9 hello"')) == 2
        assert not found('"hello number9"')
        assert len(found("zebra -number9")) == 4
        assert len(found("data_base")) == len(found("base.py")) == len(found("索")) == 2
        assert len(found("zebra", since=1793788000.0, until=1794100000.0)) == 2
        assert len(found("zebr*", agent="main", role="user")) == 8
        assert not found("zebra", role="assistant")
        assert not found("zebra", tool="bash")
        assert not found("to_tsquery('x') & ! | <-> :*")
        pages, after = [], None
        while True:
            page = catalogue.search("zebr*", limit=3, after=after)
            pages.append(page.results)
            if (after := page.next) is None:
                break
        assert list(map(len, pages)) == [3, 3, 2]
        assert sum(pages, ()) == catalogue.search("zebr*").results
        hit = catalogue.search("number9", host="alpha").results[0]
        assert (hit.entry, hit.role, hit.title) == ("e9", "user", "Zebra number1 héllo")
        assert hit.time == "2026-11-09T10:00:00.000Z"
        for wrong in ("-zebra", "…", '""'):
            with pytest.raises(Invalid, match="no word"):
                catalogue.search(wrong)
        with pytest.raises(Invalid, match="not the end of a page"):
            catalogue.search("zebra", after="1.2")
        with pytest.raises(NotFound, match="no host gamma"):
            catalogue.search("zebra", host="gamma")


def test_sessions_and_hosts(member: MakeMember) -> None:
    one, two, three = (
        member("alpha", "aaaaaaaa"),
        member("alpha", "bbbbbbbb"),
        member("beta", "cccccccc"),
    )
    for each in (one, two, three):
        write(each.layout, [dict(conversation(0)[0], cwd="/home/ada/x"), *conversation(2)[1:]], S1)
        (each.layout.agents / "main" / "sessions" / "s2.jsonl").write_bytes(sample(3))
        each.ingest(behind=Behind(3, 1000, 60.0))
    with open_catalogue(one.settings) as catalogue:
        assert [(host.host, host.id) for host in catalogue.hosts()] == [
            ("alpha~aaaaaaaa", "aaaaaaaa"),
            ("alpha~bbbbbbbb", "bbbbbbbb"),
            ("beta", "cccccccc"),
        ]
        (told,) = [host for host in catalogue.hosts() if host.host == "beta"]
        assert (told.sessions, told.behind_files, told.behind_seconds) == (2, 3, 60.0)
        assert (told.errors, told.last_error) == (0, None)
        assert len(catalogue.sessions().sessions) == 6
        assert len(catalogue.sessions(host="alpha").sessions) == 4
        (mine,) = catalogue.sessions(host="alpha~aaaaaaaa", directory="/home/ada/x/").sessions
        assert (mine.session, mine.host, mine.entries) == ("main/s1", "alpha~aaaaaaaa", 9)
        assert not catalogue.sessions(directory="/home/ad").sessions
        assert len(catalogue.sessions(directory="/").sessions) == 6
        (priced,) = catalogue.sessions(host="beta", directory="/home/ada/projects").sessions
        assert priced.calls > 0
        assert priced.cost > 0
        assert priced.models == ("claude-opus-4-5",)
        assert len(catalogue.sessions(untouched_seconds=86400 * 30).sessions) == 6
        assert not catalogue.sessions(untouched_seconds=86400 * 3000).sessions
        first = catalogue.sessions(limit=4)
        second = catalogue.sessions(limit=4, after=first.next)
        assert (*first.sessions, *second.sessions) == catalogue.sessions().sessions
        assert second.next is None


def test_deleted_and_excluded_sessions(member: MakeMember) -> None:
    host = member()
    paths = [write(host.layout, [*conversation(1), _question(9, "quokka")], n) for n in (S1, S2)]
    host.ingest()
    paths[0].unlink()
    assert host.ingest().deleted == 1
    assert host.ingest().deleted == 0
    deleted = "SELECT session, deleted_at IS NOT NULL FROM bsd.sessions ORDER BY 1"
    assert host.ask(deleted) == [("s1", True), ("s2", False)]
    write(host.layout, conversation(1), S1)
    host.ingest()
    assert host.ask(deleted) == [("s1", False), ("s2", False)]
    excluding = FleetMember(
        replace(host.layout, exclude=("main/s2",)), host.settings, host.postgres
    )
    excluding.ingest()
    assert host.ask(deleted) == [("s1", False)]
    assert {row[3] for row in host.entries()} == {"s1"}


def test_odd_values(member: MakeMember) -> None:
    host = member()
    odd = [
        _question(1, "a\0b \ud800 c", timestamp="9999-01-01T00:00:00Z"),
        _question(2, " ".join(f"w{n:x}" for n in range(150_000))),  # a huge vocabulary
        _question(3, "x" * 3_000_000),
        _question(4, "検" * 300_000),
        _question(5, "late", timestamp="1066-01-01T00:00:00Z"),
    ]
    write(host.layout, [*conversation(0)[:1], *odd], S1)
    written = host.ingest()
    assert (written.rows, written.failed) == (6, ())
    assert host.entries() == host.fresh()
    assert host.ask("SELECT max(time) < now() + interval '2 days' FROM bsd.entries") == [(True,)]
    without = member("beta", "bbbbbbbb", text=False)
    write(without.layout, conversation(1), S1)
    without.ingest()
    count = "SELECT count(words)::int FROM bsd.entries e JOIN bsd.sessions s ON s.id = e.session"
    assert without.ask(f"{count} WHERE s.host = 2") == [(0,)]

"""The search index follows the sessions on its own, a little at a time, after all other work."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.daemon import child_tasks, indexer
from bsd.daemon.child import Stopping
from bsd.daemon.children import ChildDied, Children
from bsd.daemon.indexer import Indexer
from bsd.daemon.loops import Clocks
from bsd.daemon.state import DaemonState
from bsd.maintenance import indexing
from bsd.maintenance.indexing import Due
from bsd.maintenance.search import sessions_with
from bsd.store.search import SearchIndex
from tests.daemon.in_process import ChildrenHere, Here
from tests.daemon.running import Running, configure, running
from tests.http.api import over_socket
from tests.loading import load_settings
from tests.openclaw_tree import add_session, set_idle
from tests.refusing import raising
from tests.session_files import sample
from tests.waiting import wait_for

pytestmark = pytest.mark.daemon

ANIMALS = ("badger", "camel", "donkey", "eland", "ferret")
HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"2026-02-01T00:00:00Z"}\n'


def said(number: int, text: str) -> bytes:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    entry = {"type": "message", "id": f"e{number}", "timestamp": "2026-02-01T00:00:00Z"}
    return json.dumps(entry | {"message": message}).encode() + b"\n"


class State(DaemonState):
    """The test sets whether other workers are busy."""

    busy = False
    woken = 0

    @property
    def is_work_waiting(self) -> bool:
        return self.busy

    def wake(self, loop: str) -> None:
        assert loop == "indexer"
        self.woken += 1


class Bench:
    """An indexer and the clock that drives it."""

    def __init__(self, root: Path) -> None:
        self.now = 1000.0
        settings = load_settings(root=root, environ={"HOME": str(root)})
        self.state = State(settings, Clocks(steady=lambda: self.now))
        self.layout = self.state.layout
        here = ChildrenHere(Here(self.layout, self.state.config))
        self.indexer = Indexer(self.state, cast(Children, here))
        self.now += 60.0

    def run(self) -> int:
        """Let it work until it wants to rest; return the number of its steps."""
        steps = 0
        while (again := self.indexer.step(self.now)) is not None:
            self.now = max(self.now, again)
            steps += 1
            assert steps < 1000
        return steps

    def find(self, words: str) -> set[str]:
        return set(map(str, sessions_with(self.layout, words)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for number, animal in enumerate(ANIMALS):
        content = HEADER + said(0, f"aardvark {animal}")
        add_session(tmp_path, f"main/s{number}", content)
    return Bench(tmp_path)


def test_it_rests_until_something_changes(bench: Bench) -> None:
    assert bench.indexer.step(bench.now) is None
    assert not bench.layout.search_db.exists()
    bench.indexer.everything()
    assert not bench.indexer.state()["complete"]
    bench.run()
    assert bench.indexer.state() == {"complete": True, "waiting": 0, "problem": None}
    assert bench.find("eland") == {"main/s3"}
    assert bench.find("aardv") == {f"main/s{number}" for number in range(5)}
    assert bench.indexer.step(bench.now) is None


def test_changes_are_gathered_and_read(bench: Bench) -> None:
    bench.indexer.everything()
    bench.run()
    woken = bench.state.woken
    path = bench.layout.session_file(SessionName("main", "s1"))
    for number in range(3):
        with path.open("ab") as file:
            file.write(said(number + 1, f"wombat{number}"))
        bench.indexer.changed(SessionName("main", "s1"))
    assert bench.state.woken == woken + 1, "the first one has woken it already"
    assert bench.indexer.state() == {"complete": False, "waiting": 1, "problem": None}
    later = bench.indexer.step(bench.now)
    assert later is not None
    assert later > bench.now, "there may come more"
    assert bench.find("wombat2") == set()
    bench.run()
    assert bench.find("wombat2") == {"main/s1"}


def test_what_is_gone_is_forgotten_for_good(bench: Bench) -> None:
    bench.indexer.everything()
    bench.run()
    bench.layout.session_file(SessionName("main", "s2")).unlink()
    bench.indexer.changed(SessionName("main", "s2"))
    bench.layout.session_file(SessionName("main", "s4")).unlink()
    bench.indexer.everything()
    bench.run()
    assert bench.find("aardvark") == {"main/s0", "main/s1", "main/s3"}
    files = b"".join(path.read_bytes() for path in bench.layout.own.glob("search.db*"))
    assert b"camel" in files
    assert b"donkey" not in files
    assert b"ferret" not in files


def test_those_who_work_come_first_but_not_for_ever(bench: Bench) -> None:
    bench.indexer.everything()
    bench.state.busy = True
    started = bench.now
    while not bench.layout.search_db.exists():
        again = bench.indexer.step(bench.now)
        if again is None:
            break  # it has done it
        assert again > bench.now, "nobody is asked all the time"
        bench.now = again
    assert bench.now - started >= 5.0


def test_a_huge_session_keeps_no_small_one_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "PART_BYTES", 10_000)
    monkeypatch.setattr(indexer, "_STEP_SECONDS", 0.001)  # hardly more than a slice
    big = HEADER + b"".join(said(n, f"dingo{n} " + "filling " * 50) for n in range(500))
    add_session(bench.layout.root, "agent/a", big)
    bench.indexer.everything()
    while not bench.find("badger"):
        again = bench.indexer.step(bench.now)
        assert again is not None
        bench.now = max(bench.now, again)
    assert not bench.find("dingo499"), "it came in between"
    bench.run()
    assert bench.find("dingo499") == {"agent/a"}


def test_a_removed_index_is_made_anew(bench: Bench) -> None:
    bench.indexer.everything()
    bench.run()
    for path in bench.layout.own.glob("search.db*"):
        path.unlink()
    bench.indexer.changed(SessionName("main", "s0"))
    bench.run()
    assert len(bench.find("aardvark")) == 5


@pytest.fixture
def agents(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """More agents; the search is told about each agent separately."""
    monkeypatch.setattr(indexer, "_MOST_FOUND", 1)
    monkeypatch.setattr(indexer, "_LEAST_WAITING", 1)
    names = [f"{agent}/s" for agent in ("next", "other", "zoe")]
    for name in names:
        add_session(bench.layout.root, name, HEADER + said(0, "aardvark"))
    return names


def test_very_many_are_found_in_parts(bench: Bench, agents: list[str]) -> None:
    bench.indexer.everything()
    for name in reversed(agents):
        bench.indexer.changed(SessionName.parse(name))
    assert bench.indexer.state()["waiting"] == 0, "they are looked at with all others"
    most = 0
    while (again := bench.indexer.step(bench.now)) is not None:
        bench.now = max(bench.now, again)
        most = max(most, bench.indexer.state()["waiting"])
    assert most <= 5, "no more than one agent's"
    assert bench.find("aardvark") == {*agents, *(f"main/s{number}" for number in range(5))}
    assert bench.indexer.state()["complete"]
    gone = bench.layout.session_file(SessionName.parse(agents[1]))
    gone.unlink()
    gone.parent.rmdir()
    gone.parent.parent.rmdir()
    bench.indexer.everything()
    bench.run()
    assert agents[1] not in bench.find("aardvark")


def test_an_index_that_is_removed_between_two_parts_is_made_anew(
    bench: Bench, agents: list[str]
) -> None:
    bench.indexer.everything()
    while "next/s" not in bench.find("aardvark"):
        again = bench.indexer.step(bench.now)
        assert again is not None
        bench.now = max(bench.now, again)
    assert not bench.indexer.state()["complete"]
    for path in bench.layout.own.glob("search.db*"):
        path.unlink()
    bench.run()
    assert bench.find("aardvark") == {*agents, *(f"main/s{number}" for number in range(5))}


def test_trouble_is_told_and_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            child_tasks, "find_due", raising(sqlite3.OperationalError("database or disk is full"))
        )
        bench.indexer.everything()
        again = bench.indexer.step(bench.now)
    assert again is not None
    assert again >= bench.now + 60.0
    assert "disk is full" in bench.indexer.state()["problem"]
    bench.now = again
    bench.run()
    assert bench.indexer.state() == {"complete": True, "waiting": 0, "problem": None}


def test_a_look_at_all_sessions_ends_when_the_daemon_stops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Here(bench.layout, bench.state.config)
    monkeypatch.setattr(child, "progress", raising(Stopping()))
    with pytest.raises(Stopping):
        child_tasks.find_unread(child, None, 1000, 1.0)


def test_a_session_that_breaks_the_reader_stops_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = indexing.read_part

    def breaking(*arguments: Any) -> bool:
        if arguments[2].name.session == "s0":
            raise RecursionError("something nobody thought of")
        return before(*arguments)

    monkeypatch.setattr(indexing, "read_part", breaking)
    bench.indexer.everything()
    bench.run()
    assert bench.find("aardvark") == {f"main/s{number}" for number in range(1, 5)}


def test_the_last_of_the_disk_is_left_to_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_LEAST_FREE", 1.1)
    bench.indexer.everything()
    bench.indexer.step(bench.now)
    assert bench.indexer.state()["problem"] == "the disk is nearly full"
    assert not bench.layout.search_db.exists()


def test_a_change_while_it_is_read_is_not_missed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = SessionName("main", "s0")
    before, told = indexing.read_part, threading.Event()

    def meddling(*arguments: Any) -> bool:
        more = before(*arguments)
        if not told.is_set():
            told.set()
            with bench.layout.session_file(name).open("ab") as file:
                file.write(said(1, "numbat"))
            bench.indexer.changed(name)
        return more

    monkeypatch.setattr(indexing, "read_part", meddling)
    bench.indexer.changed(name)
    bench.run()
    assert bench.find("numbat") == {"main/s0"}


@pytest.fixture
def meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Events after all sessions were read, and before the indexer learns of that."""
    bench.indexer.everything()
    bench.run()
    happens: list[Callable[[], object]] = []
    before = indexing.find_due

    def finding(*arguments: Any, **more: Any) -> Any:
        found = before(*arguments, **more)
        while happens:
            happens.pop(0)()
        return found

    monkeypatch.setattr(child_tasks, "find_due", finding)
    return happens


def test_a_change_while_all_are_looked_at_is_not_missed(
    bench: Bench, meanwhile: list[Callable[[], object]]
) -> None:
    name = SessionName("main", "s0")
    transcript = bench.layout.session_file(name)
    meanwhile += [
        lambda: transcript.write_bytes(transcript.read_bytes() + said(1, "numbat")),
        lambda: bench.indexer.changed(name),
    ]
    bench.indexer.everything()
    bench.run()
    assert bench.find("numbat") == {"main/s0"}


def test_a_wish_to_look_at_all_while_that_is_done_is_not_missed(
    bench: Bench, meanwhile: list[Callable[[], object]]
) -> None:
    meanwhile += [
        lambda: add_session(bench.layout.root, "main/late", HEADER + said(1, "numbat")),
        bench.indexer.everything,
    ]
    bench.indexer.everything()
    bench.run()
    assert bench.find("numbat") == {"main/late"}


def test_a_session_that_ends_whoever_reads_it_stops_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = indexing.read_part

    def ending(*arguments: Any) -> bool:
        if arguments[2].name.session == "s2":
            raise ChildDied("the process that worked on it was ended by SIGKILL")
        return before(*arguments)

    monkeypatch.setattr(indexing, "read_part", ending)
    monkeypatch.setattr(child_tasks, "read_some", _until_it_ends)
    bench.indexer.everything()
    bench.run()
    assert bench.find("aardvark") == {"main/s0", "main/s1", "main/s3", "main/s4"}


def _until_it_ends(
    layout: Layout, index: SearchIndex, wanted: list[Due], *_: object
) -> list[indexing.ReadOn]:
    """Run as a child does; an exception that ends the child is not counted against a session."""
    turns = []
    for due in wanted:
        with index.change():
            turns.append(indexing.ReadOn(due, more=indexing.read_part(layout, index, due)))
    return turns


# --- in a real daemon -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tmp_path = tmp_path_factory.mktemp("indexed")
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    configure(root, trigger_types=["tool_result", "thinking", "assistant"], prefix_bound="extract")
    add_session(root, "main/sample", sample(12, 1))
    quokka = said(1, "a quokka").replace(b'"role": "user"', b'"role": "assistant"')
    quokka = quokka.replace(b"a quokka", b"the quokka is here " + b"filling " * 100)
    recent = b"".join(said(n, f"recent{n}") for n in range(2, 9))
    recent = recent.replace(b'"role": "user"', b'"role": "assistant"')
    add_session(root, "main/animals", HEADER + said(0, "an aardvark") + quokka + recent)
    feather = said(1, "a feather").replace(b'"role": "user"', b'"role": "toolResult"')
    add_session(root, "main/results", HEADER + said(0, "look") + feather)
    with running(root, tmp_path) as daemon:
        path = root / "agents/main/sessions/animals.jsonl"
        wait_for(lambda: b"[[extracted-e1]]" in path.read_bytes(), "the extraction")
        wait_for(lambda: daemon.ask("status")["search"]["complete"], "the index")
        yield daemon


def listed(daemon: Running, query: str) -> set[str]:
    status, answer = over_socket(daemon.socket, f"/api/sessions?{query}")
    assert status == 200, answer
    assert answer["search"]["problem"] is None
    return {one["session"] for one in answer["sessions"]}


def test_text_that_is_only_in_the_store_is_found(daemon: Running) -> None:
    ask: Callable[[], set[str]] = lambda: listed(daemon, "q=quokka")  # noqa: E731
    wait_for(lambda: ask() == {"main/animals"}, "the text that was taken out")
    assert listed(daemon, "q=quok") == {"main/animals"}, "while it is still being typed"
    assert listed(daemon, "q=quokka+anim") == {"main/animals"}, "one in the text, one in the name"
    assert listed(daemon, "q=quokka+sample") == set()
    assert listed(daemon, "q=quokka&agent=main") == {"main/animals"}
    assert listed(daemon, "q=%22quokka+is+here%22") == {"main/animals"}
    assert listed(daemon, "q=)()(") == set()
    assert listed(daemon, "q=claude") == {"main/sample"}, "by the name of a model"
    status, found = over_socket(daemon.socket, "/api/search?q=quokka")
    (hit,) = found["results"]
    assert (status, hit["session"], hit["where"]) == (200, "main/animals", "extracted")
    assert [hit["snippet"][slice(*match)] for match in hit["matches"]] == ["quokka"]
    assert over_socket(daemon.socket, "/api/search?q=()")[0] == 400
    assert over_socket(daemon.socket, "/api/search")[0] == 400


def test_everything_is_searched_page_by_page(daemon: Running) -> None:
    found, cursor, scanned = [], "", 0
    while True:
        query = f"q=feather&all=true&limit=50{cursor and '&cursor='}{cursor}"
        status, page = over_socket(daemon.socket, f"/api/search?{query}")
        assert status == 200, page
        found += page["results"]
        assert scanned <= page["scanned"] <= page["total"]
        scanned = page["scanned"]
        if (cursor := page.get("cursor", "")) == "":
            break
    assert scanned == page["total"] > 0
    ((hit, *_), others) = found, over_socket(daemon.socket, "/api/search?q=feather")[1]
    assert (hit["session"], others["results"]) == ("main/results", []), "it is no word of a user"
    assert [hit["snippet"][slice(*match)] for match in hit["matches"]] == ["feather"]
    assert over_socket(daemon.socket, "/api/search?q=x&all=true&cursor=00")[0] == 400


def test_the_index_is_switched_off_and_on(daemon: Running) -> None:
    assert listed(daemon, "q=aardvark") == {"main/animals"}
    database = daemon.root / ".brainsurgeon/search.db"
    with_words = database.stat().st_size
    assert over_socket(daemon.socket, "/api/config", "POST", b'{"search_index":false}')[0] == 200
    wait_for(lambda: database.stat().st_size < with_words, "the words to go")
    status, found = over_socket(daemon.socket, "/api/search?q=aardvark")
    assert (status, found["results"]) == (200, [])
    assert "search_index" in found["search"]["problem"]
    _, page = over_socket(daemon.socket, "/api/search?q=aardvark&all=true")
    assert [hit["session"] for hit in page["results"]] == ["main/animals"]
    _, answer = over_socket(daemon.socket, "/api/sessions?q=animals")
    assert answer["sessions"][0]["entry_count"] == 10, "figures stay"
    assert over_socket(daemon.socket, "/api/config", "POST", b'{"search_index":true}')[0] == 200

    def is_back() -> bool:  # until the indexer has followed the setting, there is a problem
        found = over_socket(daemon.socket, "/api/sessions?q=aardvark")[1]["sessions"]
        return [one["session"] for one in found] == ["main/animals"]

    wait_for(is_back, "the words to come back")


def test_figures_are_in_list_and_detail(daemon: Running) -> None:
    def figures() -> dict[str, Any]:
        _, answer = over_socket(daemon.socket, "/api/sessions?q=animals")
        (found,) = answer["sessions"]
        return dict(found)

    found = wait_for(lambda: (one := figures())["counted"] and one, "the figures")
    assert (found["entry_count"], found["messages"], found["is_stale"]) == (10, 9, True)
    assert found["saved_bytes"] > 300
    _, detail = over_socket(daemon.socket, "/api/sessions/main/animals")
    assert {key: detail[key] for key in found} == found
    assert len(detail["entries"]) == 10
    _, sample = over_socket(daemon.socket, "/api/sessions/main/sample")
    assert sample["tool_calls"] > 0
    assert sample["tokens"]["total"] > 0
    assert sample["model"].startswith("claude")
    _, summary = over_socket(daemon.socket, "/api/sessions/main/sample/summary")
    assert summary["summary"]["tool_calls"] == sample["tool_calls"]
    assert (summary["agent"], summary["session_id"]) == ("main", "sample")


def test_what_is_appended_and_what_is_deleted_is_followed(daemon: Running) -> None:
    path = add_session(daemon.root, "main/short", HEADER + said(0, "a bandicoot"))
    wait_for(lambda: listed(daemon, "q=bandicoot") == {"main/short"}, "a new session")
    with path.open("ab") as file:
        file.write(said(1, "a numbat"))
    wait_for(lambda: listed(daemon, "q=numbat") == {"main/short"}, "what was appended")
    set_idle(path)
    status, gone = over_socket(daemon.socket, "/api/sessions/main/short", "DELETE")
    assert status == 200
    assert listed(daemon, "q=bandicoot") == set()
    status, _ = over_socket(daemon.socket, f"/api/trash/{gone['trash_id']}/restore", "POST")
    assert status == 200
    wait_for(lambda: listed(daemon, "q=bandicoot") == {"main/short"}, "what came back")


def test_a_daemon_that_may_change_nothing_finds_text_too(tmp_path: Path, root: Path) -> None:
    configure(root)
    path = add_session(root, "main/animals", HEADER + said(0, "an aardvark"))
    before = path.stat()
    with running(root, tmp_path, BRAINSURGEON_READONLY="true") as daemon:
        wait_for(lambda: listed(daemon, "q=aardvark") == {"main/animals"}, "the index")
        with path.open("ab") as file:
            file.write(said(1, "a numbat"))
        wait_for(lambda: listed(daemon, "q=numbat") == {"main/animals"}, "what was appended")
    assert path.stat().st_ino == before.st_ino

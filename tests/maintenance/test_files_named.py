"""The files that calls name are in the search index: they follow appends, edits and deletion."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.files_touched import find_files, find_files_in_all, show_file
from bsd.actions.search import search_all
from bsd.core.config_file import ConfigService
from bsd.core.errors import Invalid, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import search as lifecycle
from bsd.maintenance.scan import FullScan
from bsd.maintenance.search import files_named, forget_stored, search
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.store.search import SearchHit
from bsd.store.search_filter import SearchFilter, SearchPlace
from tests.actions.performed import Caller
from tests.maintenance.keeping import DAY, keep
from tests.openclaw_tree import add_session, set_idle
from tests.searching import read_all
from tests.session_files import HEADER, Clock, entry, jsonl

NAME = SessionName("main", "s1")
LONG = "def login(): ...  # the quokka\n" * 60


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """An answer that calls a tool; its result is `result(number)`."""
    line = entry(number, "assistant", "let me see")
    block = {"type": "toolCall", "id": f"call{number}", "name": tool, "arguments": arguments}
    line["message"]["content"].append(block)
    line["message"]["stopReason"] = "toolUse"
    return line


def result(number: int, text: str = LONG) -> dict[str, Any]:
    """The result of a call."""
    line = entry(number + 100, "toolResult", text)
    line["message"]["toolCallId"] = f"call{number}"
    return line


def conversation(*more: dict[str, Any]) -> bytes:
    """Read `src/auth.py`, write it, and continue for a while."""
    return jsonl(
        HEADER | {"cwd": "/home/me/p"},
        entry(0, "user", "mend the login"),
        call(1, "read", path="src/auth.py"),
        result(1),
        call(2, "write", path="/home/me/p/src/auth.py", content=LONG),
        result(2, "written"),
        *(entry(number, "assistant", f"seen {number}") for number in range(3, 9)),
        *more,
    )


@pytest.fixture
def session(layout: Layout) -> Path:
    return add_session(layout.root, str(NAME), conversation())


@pytest.fixture
def caller(layout: Layout) -> Caller:
    config = ConfigService(layout.config_file)
    return Caller(layout=layout, config=config, budget=RetryBudget(wait=0.0))


def named(layout: Layout, path: str, **more: Any) -> dict[str, tuple[int, ...]]:
    found = files_named(layout, path, update=True, **more)
    return {f"{one.use.value} {one.path}": one.lines for one in found}


BOTH = {"read src/auth.py": (2,), "changed /home/me/p/src/auth.py": (4,)}


def test_sessions_are_found_by_the_end_of_a_path(layout: Layout, session: Path) -> None:
    assert named(layout, "auth.py") == BOTH
    assert named(layout, "SRC/auth.py") == BOTH
    assert named(layout, "/home/me/p/src/auth.py") == BOTH, "it began in /home/me/p"
    assert named(layout, "au*") == BOTH
    assert named(layout, "lib/auth.py") == {}
    assert named(layout, "uth.py") == {}
    add_session(layout.root, "other/s2", conversation())
    assert named(layout, "auth.py", agent="other") == BOTH
    assert len(files_named(layout, "auth.py", update=True)) == 4
    for odd in ("", "*", "..", "/"):
        with pytest.raises(Invalid):
            files_named(layout, odd)


def test_they_follow_the_session(layout: Layout, session: Path) -> None:
    read_all(layout)
    with session.open("ab") as file:
        file.write(jsonl(call(20, "edit", path="/home/me/p/src/auth.py", oldText="a")))
    changed = "changed /home/me/p/src/auth.py"
    assert named(layout, "auth.py") == BOTH | {changed: (4, 12)}
    session.write_bytes(session.read_bytes().replace(b"src/auth.py", b"src/gate.py"))
    assert named(layout, "auth.py") == {}
    assert set(named(layout, "gate.py")) == {"read src/gate.py", "changed /home/me/p/src/gate.py"}
    assert list(layout.own.glob("search.db*"))
    session.unlink()
    assert named(layout, "gate.py") == {}
    kept = [path.read_bytes() for path in layout.own.glob("search.db*")]
    assert not any(b"gate.py" in content for content in kept), "deleted for good"


def test_a_huge_session_is_read_in_parts(
    layout: Layout, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsd.maintenance.indexing.PART_BYTES", 1000)
    assert named(layout, "auth.py") == BOTH


def test_a_file_in_a_patch_that_left_is_found_until_it_is_forgotten(
    layout: Layout, caller: Caller
) -> None:
    patch = "*** Begin Patch\n*** Update File: src/auth.py\n" + "+ the wombat\n" * 60
    lines = conversation().replace(b'"write"', b'"apply_patch"').splitlines(keepends=True)
    lines[4] = jsonl(call(2, "apply_patch", patch=patch))
    path = add_session(layout.root, str(NAME), b"".join(lines))
    wanted = {"trigger_types": ["tool_call"], "keep_recent": 2}
    assert caller.extract(NAME, overrides=wanted).status is Status.EXTRACTED
    assert b"Update File" not in path.read_bytes()
    changed = {"changed src/auth.py": (4,)}
    assert named(layout, "auth.py") == {"read src/auth.py": (2,)} | changed
    for stored in layout.store_dir(NAME).glob("[0-9]*.json"):
        stored.unlink()
    assert forget_stored(layout, [layout.store_name(NAME)])
    assert named(layout, "auth.py") == {"read src/auth.py": (2,)}


def test_what_a_model_saw_of_a_file_comes_from_the_store(
    layout: Layout, session: Path, caller: Caller
) -> None:
    settings = {"trigger_types": ["tool_result", "tool_call"], "keep_recent": 2}
    assert caller.extract(NAME, overrides=settings).status is Status.EXTRACTED
    assert b"quokka" not in session.read_bytes()
    read, write = show_file(caller, NAME, "auth.py").touches
    assert (read.index, read.use, read.tool, read.result_index) == (2, "read", "read", 3)
    assert (read.result, read.result_extracted, read.extracted) == (LONG, True, False)
    assert (write.use, write.arguments["content"], write.extracted) == ("changed", LONG, True)
    assert (write.result, write.unavailable) == ("written", None)
    for stored in layout.store_dir(NAME).glob("[0-9]*.json"):
        stored.unlink()
    read, write = show_file(caller, NAME, "auth.py").touches
    assert "unavailable" in str(read.result_unavailable)
    assert "unavailable" in str(write.unavailable)
    with pytest.raises(NotFound, match=r"no call .* names a file gate\.py"):
        show_file(caller, NAME, "gate.py")


def test_the_newest_session_comes_first_and_a_gone_one_says_so(
    layout: Layout, session: Path, caller: Caller, clock: Clock
) -> None:
    later = conversation(call(30, "bash", command="cat src/auth.py"))
    path = add_session(layout.root, "main/later", later.replace(b"2026-02-01", b"2026-03-01"))
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    found = find_files_in_all(caller, "auth.py")
    assert [one.session for one in found.sessions] == ["main/later", str(NAME)]
    assert found.sessions[0].title == "mend the login"
    [bash, *_] = [file for file in found.sessions[0].files if file.named]
    assert (bash.path, bash.read, bash.named) == ("src/auth.py", (2,), (12,))
    path.unlink()
    found = find_files_in_all(caller, "auth.py", limit=1)
    assert (found.sessions[0].gone, found.more) == (True, 1)
    assert find_files(caller, "auth.py").sessions[1].gone is None
    by_title = search_all(caller, "mend the login", limit=5)
    assert {(hit.session, hit.gone) for hit in by_title.results} == {
        ("main/later", True),
        (str(NAME), None),
    }


def test_an_index_of_an_earlier_version_is_made_anew(layout: Layout, session: Path) -> None:
    read_all(layout)
    with closing(sqlite3.connect(layout.search_db)) as database:
        database.executescript("DROP TABLE files; PRAGMA user_version = 7")
    assert named(layout, "auth.py") == BOTH


def test_without_an_index_no_path_is_kept(layout: Layout, session: Path, caller: Caller) -> None:
    assert named(layout, "auth.py") == BOTH
    assert named(layout, "auth.py", has_words=False) == {}
    with closing(sqlite3.connect(layout.search_db)) as database:
        assert database.execute("SELECT count(*) FROM files").fetchone() == (0,)
    assert named(layout, "auth.py") == BOTH


def test_a_search_can_be_of_a_session_a_role_and_a_time(
    layout: Layout, session: Path, clock: Clock
) -> None:
    old = jsonl(HEADER, entry(0, "user", "the numbat"), entry(1, "assistant", "a numbat"))
    path = add_session(layout.root, "main/old", old.replace(b"2026-02-01", b"2025-01-01"))
    with session.open("ab") as file:
        file.write(jsonl(entry(40, "user", "one numbat"), result(41, "a numbat, too")))
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    read_all(layout)
    path.unlink()

    def entries(hits: list[SearchHit]) -> set[str]:
        return {f"{hit.session.session} {hit.entry}" for hit in hits}

    def found(**wanted: Any) -> tuple[set[str], set[str]]:
        scope = SearchFilter(**wanted)
        by_index = search(layout, "numbat", wanted=scope)
        by_scan = FullScan(layout, "numbat", wanted=scope).run().hits
        return entries(by_index), entries(by_scan)

    here, tool, gone = {"s1 e40"}, {"s1 e141"}, {"old e0", "old e1"}
    assert found() == (here | gone, here | gone | tool)
    assert found(session=NAME) == (here, here | tool)
    assert found(role="user") == ({"s1 e40", "old e0"}, {"s1 e40", "old e0"})
    assert found(role="tool") == (set(), tool)
    assert found(since=1_760_000_000.0) == (here, here | tool)
    assert found(gone=True) == (gone, gone)
    assert found(gone=False) == (here, here | tool)
    assert found(until=1_760_000_000.0) == (gone, gone)
    assert found(place=SearchPlace.LIVE) == (here, here | tool)
    assert found(place=SearchPlace.GONE) == (gone, gone)
    assert found(place=SearchPlace.EXTRACTED) == (set(), set())
    assert found(session=NAME, file="auth.py") == (here, here | tool)
    assert found(file="auth.py") == (here, here | tool)
    assert found(project="elsewhere") == (set(), set())
    assert found(project="me/p") == (here, here | tool)
    assert found(project=NAME.agent) == (here | gone, here | gone | tool)
    assert lifecycle.by_title(layout, "numbat") == [(SessionName("main", "old"), "the numbat")]
    assert lifecycle.by_title(layout, "numbat", wanted=SearchFilter(gone=False)) == []
    assert lifecycle.by_title(layout, "numbat", wanted=SearchFilter(since=1_760_000_000.0)) == []

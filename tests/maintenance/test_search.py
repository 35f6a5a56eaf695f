"""The search index follows appends, extraction, restoring, rewriting, deletion and retention."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.list_sessions import figures_of
from bsd.core.answers import as_json
from bsd.core.config_file import ConfigService
from bsd.core.errors import Invalid, Unavailable
from bsd.core.files import make_private_dir
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog, indexing
from bsd.maintenance import search as lifecycle
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import search
from bsd.maintenance.trash import Trash
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from bsd.store import search as store_search
from bsd.store.search import SearchIndex
from bsd.store.search_words import indexable
from bsd.transcripts import reader
from tests.actions import performed
from tests.actions.performed import Caller
from tests.logs import capture_logs
from tests.openclaw_tree import add_session, set_idle
from tests.searching import entry, read_all
from tests.session_files import HEADER, jsonl

NAME = SessionName("main", "s1")
FILLER = "filling " * 100


ASSISTANTS = {"trigger_types": ["assistant"]}  # their texts leave


def conversation() -> bytes:
    """An old answer that will leave, and the turns that make it old."""
    return jsonl(
        HEADER,
        entry(0, "user", "please look for the aardvark"),
        entry(1, "assistant", f"the quokka lives here {FILLER}"),
        *(entry(number, "assistant", f"seen {number}") for number in range(2, 8)),
    )


@pytest.fixture
def session(layout: Layout) -> Path:
    return add_session(layout.root, str(NAME), conversation())


@pytest.fixture
def caller(layout: Layout) -> Caller:
    return Caller(
        layout=layout, config=ConfigService(layout.config_file), budget=RetryBudget(wait=0.0)
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Transcripts that were opened."""
    paths: list[Path] = []
    before = reader.TranscriptFile.__init__

    def counting(self: Any, path: Path, **more: Any) -> None:
        paths.append(path)
        before(self, path, **more)

    monkeypatch.setattr(reader.TranscriptFile, "__init__", counting)
    return paths


def found(layout: Layout, words: str, **more: Any) -> list[tuple[str | None, int, str]]:
    return [(hit.entry, hit.index, hit.where) for hit in search(layout, words, **more)]


def in_the_files(layout: Layout, word: str) -> bool:
    """Whether the files of the index contain a word, even if a search cannot find it.

    FTS5 writes only the end of a word that begins as the word before it does.
    """
    wanted = word[2:].encode()
    return any(wanted in path.read_bytes() for path in layout.own.glob("search.db*"))


def test_words_are_found_in_any_order_and_ranked(layout: Layout, session: Path) -> None:
    assert found(layout, "look PLEASE") == [("e0", 1, "transcript")]
    assert found(layout, '"look for the"') == [("e0", 1, "transcript")]
    assert found(layout, '"the look for"') == []
    assert found(layout, "aardv*") == [("e0", 1, "transcript")]
    assert found(layout, "aardv") == []
    assert len(found(layout, "seen", limit=2)) == 2
    (hit,) = search(layout, "aardvark")
    (match,) = hit.snippet.matches
    assert hit.snippet.text[slice(*match)] == "aardvark"
    assert hit.session == NAME
    with pytest.raises(Invalid):
        search(layout, "()")


def test_the_database_is_private(layout: Layout, session: Path) -> None:
    search(layout, "x")
    assert stat.S_IMODE(layout.search_db.stat().st_mode) == 0o600
    assert stat.S_IMODE(layout.own.stat().st_mode) == 0o700


def test_only_one_agent_is_searched_if_asked(layout: Layout, session: Path) -> None:
    add_session(layout.root, "other/s2", conversation())
    assert {hit.session.agent for hit in search(layout, "aardvark")} == {"main", "other"}
    assert [hit.session.agent for hit in search(layout, "aardvark", agent="other")] == ["other"]
    assert len(search(layout, "aardvark")) == 2


@pytest.fixture
def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the lines that were read into the index."""
    taken: list[int] = []
    before = indexing.LineReader.words

    def noting(self: indexing.LineReader, line: Any, *more: Any) -> Any:
        taken.append(line.index)
        return before(self, line, *more)

    monkeypatch.setattr(indexing.LineReader, "words", noting)
    return taken


def test_of_what_is_appended_only_the_new_lines_are_read(
    layout: Layout, session: Path, lines_read: list[int]
) -> None:
    search(layout, "x")
    lines_read.clear()
    with session.open("ab") as file:
        file.write(jsonl(entry(50, "user", "a wombat"))[:-1])  # its end is still missing
    assert found(layout, "wombat") == [("e50", 9, "transcript")]
    with session.open("ab") as file:
        file.write(b"\n" + jsonl(entry(51, "user", "a numbat")))
    assert found(layout, "numbat") == [("e51", 10, "transcript")]
    assert found(layout, "wombat") == [("e50", 9, "transcript")]
    assert lines_read == [9, *range(11)], "of a line without end more may come"
    lines_read.clear()
    with session.open("ab") as file:
        file.write(jsonl(entry(52, "user", "a quoll")))
    assert found(layout, "quoll") == [("e52", 11, "transcript")]
    assert lines_read == [11]
    (info,) = catalog.sessions(layout)
    figures = catalog.warm(layout, [info])[NAME]
    assert (figures.entries, figures.messages) == (12, 11)


def rows_of(layout: Layout) -> list[tuple[int, ...]]:
    """The rows of the index: id, session (0: dead), line."""
    with closing(sqlite3.connect(layout.search_db)) as database:
        return database.execute("SELECT id, session, line FROM rows ORDER BY id").fetchall()


def test_extracted_text_stays_findable_and_comes_back(
    layout: Layout, session: Path, caller: Caller
) -> None:
    assert found(layout, "quokka") == [("e1", 2, "transcript")]
    rows = rows_of(layout)
    assert caller.extract(NAME, overrides=ASSISTANTS).status is Status.EXTRACTED
    assert b"quokka" not in session.read_bytes()
    assert found(layout, "quokka") == [("e1", 2, "extracted")]
    assert found(layout, "aardvark") == [("e0", 1, "transcript")]
    assert rows_of(layout) == rows, "of an extraction no row dies"
    (info,) = catalog.sessions(layout)
    assert catalog.warm(layout, [info])[NAME].saved_bytes > 0
    set_idle(session)
    performed.restore(caller, NAME, "e1")
    assert [hit[0] for hit in found(layout, "quokka")] == ["e1"]


def test_what_was_extracted_before_the_first_search_is_found(
    layout: Layout, session: Path, caller: Caller
) -> None:
    caller.extract(NAME, overrides=ASSISTANTS)
    assert found(layout, "quokka") == [("e1", 2, "extracted")]
    assert found(layout, "extracted") == []  # placeholders are not words of the session


@pytest.mark.parametrize("in_place", [True, False])
def test_a_rewritten_session_is_read_again(layout: Layout, session: Path, in_place: bool) -> None:
    search(layout, "x")
    content = session.read_bytes().replace(b"aardvark", b"anteater")
    if in_place:
        session.write_bytes(content)
    else:
        other = session.with_name("other.tmp")
        other.write_bytes(content)
        other.replace(session)
    assert found(layout, "aardvark") == []
    assert found(layout, "anteater") == [("e0", 1, "transcript")]
    assert len(found(layout, "seen")) == 6


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are read in parts of a few lines, as huge sessions are."""
    monkeypatch.setattr(indexing, "PART_BYTES", 2000)


def counted_anew(layout: Layout, path: Path) -> Any:
    """The figures of a session, as a first reading gives them."""
    other = Layout(layout.root / "other")
    add_session(other.root, str(NAME), path.read_bytes())
    read_all(other)
    (info,) = catalog.sessions(other)
    return catalog.warm(other, [info])[NAME]


@pytest.mark.usefixtures("small_parts")
def test_of_a_rewritten_session_lines_keep_their_rows(layout: Layout) -> None:
    said = [entry(number, "assistant", f"word{number} {FILLER}") for number in range(40)]
    path = add_session(layout.root, str(NAME), jsonl(HEADER, *said))
    assert found(layout, "word39") == [("e39", 40, "transcript")]
    before = rows_of(layout)

    said[20] = entry(20, "assistant", "another one")
    path.with_name("new").write_bytes(jsonl(HEADER, *said))
    path.with_name("new").replace(path)

    assert found(layout, "another one") == [("e20", 21, "transcript")]
    assert found(layout, "word20") == []
    assert len(set(rows_of(layout)) - set(before)) == 2, "a dead one, and a new one"
    assert found(layout, "word39") == [("e39", 40, "transcript")]
    (info,) = catalog.sessions(layout)
    figures = catalog.warm(layout, [info])[NAME]
    assert figures == counted_anew(layout, path)

    del said[10]  # from here on every line has another number
    path.write_bytes(jsonl(HEADER, *said))
    assert found(layout, "word39") == [("e39", 39, "transcript")]
    assert found(layout, "word10") == []
    assert [len(found(layout, f"word{n}")) for n in (0, 9, 11, 38)] == [1, 1, 1, 1]


def test_rows_are_swept_when_many_are_dead(layout: Layout) -> None:
    said = [entry(number, "user", f"aardvark{number}") for number in range(300)]
    path = add_session(layout.root, str(NAME), jsonl(HEADER, *said))
    read_all(layout)
    said[:80] = [entry(number, "user", f"quokka{number}") for number in range(80)]
    path.write_bytes(jsonl(HEADER, *said))
    assert len(found(layout, "quokka*", limit=100)) == 80
    assert sum(session == 0 for _, session, _ in rows_of(layout)) == 80
    said[80:150] = [entry(number, "user", f"numbat{number}") for number in range(80, 150)]
    path.write_bytes(jsonl(HEADER, *said))
    assert len(found(layout, "numbat*", limit=100)) == 70
    assert all(session for _, session, _ in rows_of(layout))
    with closing(sqlite3.connect(layout.search_db)) as database:
        query = "SELECT DISTINCT term FROM terms WHERE term LIKE 'aardvark%'"
        left = {term for (term,) in database.execute(query)}
    assert left == {f"aardvark{number}" for number in range(150, 300)}
    assert found(layout, "aardvark299") == [("e299", 300, "transcript")]


@pytest.mark.usefixtures("small_parts")
def test_what_was_read_in_part_is_read_on(layout: Layout, lines_read: list[int]) -> None:
    said = [entry(number, "user", f"word{number} {FILLER}") for number in range(9)]
    add_session(layout.root, str(NAME), jsonl(HEADER, *said))
    due = indexing.Due(NAME)

    def begin(index: SearchIndex) -> bool:
        with index.change():
            return indexing.read_part(layout, index, due)

    assert store_search.use(layout.search_db, begin), "there is more"
    hits = lifecycle.search_as_it_is(layout, "word*")
    assert 0 < len(hits) < 9
    (info,) = catalog.sessions(layout)
    assert catalog.warm(layout, [info]) == {}
    statistics, is_current = catalog.counted(layout, [info])[NAME]
    assert (is_current, statistics.messages) == (False, len(hits))
    lines_read.clear()
    assert len(found(layout, "word*")) == 9
    assert len(lines_read) == 9 - len(hits)


def test_a_shortened_session_is_read_again(layout: Layout, session: Path) -> None:
    search(layout, "x")
    session.write_bytes(jsonl(HEADER, entry(0, "user", "nothing else")))
    assert found(layout, "seen") == []
    assert found(layout, "nothing") == [("e0", 1, "transcript")]


def test_retention_takes_the_text_out_of_the_index(
    layout: Layout, session: Path, caller: Caller
) -> None:
    caller.extract(NAME, overrides=ASSISTANTS)
    assert found(layout, "quokka")
    assert in_the_files(layout, "quokka")

    done = RetentionRun(layout, actor="test", clock=lambda: time.time() + 7200).clean_store("30m")

    assert done.cleaned == 1
    assert not in_the_files(layout, "quokka")
    assert in_the_files(layout, "aardvark")
    assert found(layout, "quokka") == []


def test_retention_finds_what_was_indexed_before_it_was_extracted(
    layout: Layout, session: Path, caller: Caller
) -> None:
    assert found(layout, "quokka")
    caller.extract(NAME, overrides=ASSISTANTS)
    RetentionRun(layout, actor="test", clock=lambda: time.time() + 7200).clean_store("30m")
    assert not in_the_files(layout, "quokka")
    assert in_the_files(layout, "aardvark")


def test_retention_forgets_a_session_that_is_gone(
    layout: Layout, session: Path, caller: Caller
) -> None:
    caller.extract(NAME, overrides=ASSISTANTS)
    search(layout, "quokka")
    session.unlink()
    RetentionRun(layout, actor="test", clock=lambda: time.time() + 7200).clean_store("30m")
    assert not in_the_files(layout, "quokka")
    assert not in_the_files(layout, "aardvark")


def test_retention_without_an_index_creates_none(
    layout: Layout, session: Path, caller: Caller
) -> None:
    caller.extract(NAME, overrides=ASSISTANTS)
    RetentionRun(layout, actor="test", clock=lambda: time.time() + 7200).clean_store("30m")
    assert not layout.search_db.exists()


@pytest.mark.parametrize("permanent", [True, False])
def test_a_deleted_session_leaves_the_index(
    layout: Layout, session: Path, caller: Caller, permanent: bool
) -> None:
    add_session(layout.root, "main/s2", jsonl(HEADER, entry(0, "user", "a bandicoot")))
    caller.extract(NAME, overrides=ASSISTANTS)
    set_idle(session)
    assert found(layout, "quokka")
    trash = Trash(layout, "14d", budget=RetryBudget(wait=0.0))

    trash.delete(NAME, permanent=permanent)

    assert not in_the_files(layout, "quokka")
    assert not in_the_files(layout, "aardvark")
    assert found(layout, "bandicoot") == [("e0", 1, "transcript")]
    if not permanent:
        trash.restore(str(NAME))
        assert found(layout, "quokka") == [("e1", 2, "extracted")]


def test_a_session_that_somebody_else_deleted_is_forgotten(layout: Layout, session: Path) -> None:
    search(layout, "x")
    session.unlink()
    assert found(layout, "aardvark") == []
    assert not in_the_files(layout, "aardvark")


@pytest.mark.parametrize("damage", ["rubbish", "torn", "empty", "gone", "version", "tables"])
def test_a_damaged_database_is_made_anew(layout: Layout, session: Path, damage: str) -> None:
    search(layout, "x")
    path = layout.search_db
    match damage:
        case "rubbish":
            path.write_bytes(b"no database at all " * 500)
        case "torn":
            path.write_bytes(path.read_bytes()[:8192] + b"\xff" * 20_000)
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "version" | "tables":
            database = sqlite3.connect(path)
            script = "PRAGMA user_version = 99" if damage == "version" else "DROP TABLE rows"
            database.executescript(script)
            database.close()
    assert found(layout, "aardvark") == [("e0", 1, "transcript")]


def test_the_index_of_an_earlier_version_is_replaced(layout: Layout, session: Path) -> None:
    make_private_dir(layout.own)
    with closing(sqlite3.connect(layout.search_db)) as database:
        database.execute("CREATE TABLE pieces (body TEXT)")
        database.executemany("INSERT INTO pieces VALUES (?)", [("thylacine " * 1000,)] * 100)
        database.execute("PRAGMA user_version = 3")
        database.commit()
    size = layout.search_db.stat().st_size
    with capture_logs() as logs:
        assert found(layout, "aardvark") == [("e0", 1, "transcript")]
    assert not {line["log_level"] for line in logs} & {"warning", "error"}, "it is no trouble"
    assert layout.search_db.stat().st_size < size
    assert not in_the_files(layout, "thylacine")


@pytest.mark.parametrize(
    "text",
    ["Ünïcode straße ΣΊΓΜΑΣ", "日本語 😀", "я" * 50_000, "x" * 70_000, "…", "\u0301a\u0301"],
    ids=["letters", "unspaced", "long", "longer", "none", "marks"],
)
def test_all_words_of_whatever_kind_are_swept(layout: Layout, text: str) -> None:
    add_session(layout.root, "main/odd", jsonl(HEADER, entry(0, "user", f"{text} {text}")))
    read_all(layout)
    layout.session_file(SessionName("main", "odd")).unlink()
    read_all(layout)
    with closing(sqlite3.connect(layout.search_db)) as database:
        assert database.execute("SELECT count(*) FROM terms").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM words_docsize").fetchone() == (0,)


def test_an_sqlite_without_fts5_is_said_so(
    layout: Layout, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = [text.replace("fts5", "fts5_is_not_there") for text in store_search.CREATE]
    monkeypatch.setattr(store_search, "CREATE", tuple(without))
    with pytest.raises(Unavailable, match="FTS5"):
        search(layout, "aardvark")


def test_a_warm_index_of_a_thousand_sessions_opens_none(layout: Layout, opened: list[Path]) -> None:
    for number in range(1000):
        text = f"word{number} everywhere"
        add_session(layout.root, f"main/s{number}", jsonl(HEADER, entry(0, "user", text)))
    read_all(layout)
    assert len(opened) == 1000
    opened.clear()

    (hit,) = search(layout, "word777")

    assert hit.session.session == "s777"
    assert [path.name for path in opened] == ["s777.jsonl"], "for the text around the word"
    opened.clear()
    infos = list(catalog.sessions(layout))
    assert len(catalog.warm(layout, infos)) == 1000
    assert opened == []


def test_a_killed_process_leaves_a_usable_index(layout: Layout, session: Path) -> None:
    search(layout, "x")
    for number in range(20):
        content = jsonl(HEADER, *(entry(n, "user", f"dingo{number} at {n}") for n in range(20)))
        add_session(layout.root, f"main/k{number}", content)
    for survived in (1, 30, 150, 390):
        child = os.fork()
        if not child:
            _die_after(layout, survived)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert found(layout, "aardvark", agent="main")  # finishes an interrupted run, too
        for path in layout.agents.glob("main/sessions/k*.jsonl"):
            path.write_bytes(path.read_bytes().replace(b" at ", b" at at "))
    assert len(found(layout, "dingo3", limit=100)) == 20
    assert len(found(layout, "at", limit=1000)) == 400


def _die_after(layout: Layout, inserts: int) -> None:
    """Insert `inserts` pieces, then be killed; never returns."""
    try:
        left = inserts

        def counting(text: str) -> str:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return indexable(text)

        vars(store_search)["indexable"] = counting
        search(layout, "x")
    finally:
        os._exit(0)


def test_text_of_any_kind_is_taken(layout: Layout) -> None:
    huge = "lorem " * 500_000 + "needle"
    content = jsonl(
        HEADER,
        entry(0, "user", "Ünïcode straße 日本語のテキスト 😀"),
        entry(1, "user", "half a pair \ud83d stays"),
        entry(2, "user", "before\0after", model="\ud800", usage={"input": 10**30}),
        entry(3, "user", huge),
        entry(4, "user", "x" * 3_000_000),
    )
    content += b'broken {"json": dodo\n\xff\xfe not utf8 thylacine\n\n\0\0\0\n'
    content += b'{"type":"message","id":"\\ud800","message":{"role":"user","content":"odd id"}}'
    add_session(layout.root, "main/odd", content)
    assert found(layout, "unicode STRASSE") == []  # sharp s stays unchanged
    assert found(layout, "unicode straße") == [("e0", 1, "transcript")]
    assert found(layout, "本語") == [("e0", 1, "transcript")]
    assert found(layout, "語本") == []
    assert found(layout, "pair stays") == [("e1", 2, "transcript")]
    assert found(layout, "before") == found(layout, "after") == [("e2", 3, "transcript")]
    assert found(layout, "needle") == [("e3", 4, "transcript")]
    assert found(layout, "dodo") == found(layout, "thylacine") == [], "they are nobody's words"
    assert found(layout, "odd id") == [("?", 10, "transcript")]
    assert found(layout, "\ud83d pair") == [("e1", 2, "transcript")]


def test_the_index_takes_little_of_the_disk(layout: Layout, shared_data: Path) -> None:
    total = 0
    for number, path in enumerate(sorted(shared_data.glob("**/*.jsonl"))):
        total += add_session(layout.root, f"main/{path.stem}-{number}", path).stat().st_size
    read_all(layout)
    used = sum(path.stat().st_size for path in layout.own.glob("search.db*"))
    assert 0 < used < 0.05 * total


def test_statistics_of_a_session(layout: Layout) -> None:
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "/x"}}
    usage = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 1, "totalTokens": 116}
    answer = entry(2, "assistant", "done", model="claude-opus-4-5", usage=usage)
    answer["message"]["content"].append(call)
    other = entry(40, "assistant", "more", model="gpt-5.1", usage={"input_tokens": 7})
    content = jsonl(HEADER, entry(0, "user", "go"), answer, entry(3, "toolResult", "r"), other)
    add_session(layout.root, str(NAME), content)
    infos = list(catalog.sessions(layout))
    assert catalog.warm(layout, infos) == {}
    assert not layout.own.exists()

    read_all(layout)

    now = infos[0].updated
    figures = figures_of(catalog.warm(layout, infos)[NAME], is_stale=False)
    assert as_json(figures) == {
        "entry_count": 5,
        "messages": 4,
        "tool_calls": 1,
        "tool_outputs": 1,
        "model": "gpt-5.1",
        "models": ["claude-opus-4-5", "gpt-5.1"],
        "tokens": {"input": 17, "output": 5, "cache_read": 100, "cache_write": 1, "total": 123},
        "created": "2026-02-01T00:00:00.000Z",
        "duration_minutes": 40.0,
        "is_stale": False,
        "saved_bytes": 0,
    }
    assert not catalog.is_stale(now, now + 24 * 3600)
    assert catalog.is_stale(now, now + 24 * 3600 + 1)
    with (layout.sessions_dir("main") / "s1.jsonl").open("ab") as file:
        file.write(jsonl(entry(60, "user", "not counted yet")))
    assert catalog.warm(layout, list(catalog.sessions(layout))) == {}

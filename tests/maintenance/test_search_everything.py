"""A search through everything finds all text, at any place, and continues where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bsd.core.errors import BsdError, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.scan import FullScan, ScanPosition
from bsd.maintenance.search import search
from bsd.store.search import SearchHit
from bsd.store.search_filter import SearchFilter, SearchPlace
from tests.actions.performed import Caller
from tests.maintenance.archiving import age, clean, packs
from tests.maintenance.keeping import DAY, keep
from tests.openclaw_tree import add_session, set_idle
from tests.searching import entry, everything
from tests.session_files import HEADER, NAME, Clock, jsonl

FILLER = "filling " * 100


def results(*words: str) -> bytes:
    """A session with a long result of a tool for each of these words."""
    said = [entry(number, "toolResult", f"{word} {FILLER}") for number, word in enumerate(words)]
    answers = [entry(100 + number, "assistant", "seen") for number in range(6)]
    return jsonl(HEADER, *said, *answers)


def names(hits: list[SearchHit]) -> list[tuple[str, str | None, str]]:
    return [(str(hit.session), hit.entry, hit.where) for hit in hits]


def places(layout: Layout) -> set[SearchPlace]:
    """The places in which a search through everything finds the quokka, searched separately."""
    return {
        place
        for place in SearchPlace
        if everything(layout, "quokka", wanted=SearchFilter(place=place))
    }


def test_thinking_and_calls_are_searched_by_themselves(layout: Layout, caller: Caller) -> None:
    content = [
        {"type": "thinking", "thinking": f"a quokka thinks {FILLER}"},
        {"type": "text", "text": "the numbat says"},
        {"type": "toolCall", "id": "c", "name": "feed", "arguments": {"text": f"wombat {FILLER}"}},
    ]
    said = entry(0, "assistant", "")
    said["message"]["content"] = content
    answers = [entry(100 + number, "assistant", "seen") for number in range(20)]
    result = entry(1, "toolResult", "dodo")
    add_session(layout.root, str(NAME), jsonl(HEADER, said, result, *answers))

    def found(role: str) -> set[str]:
        words = ("quokka", "numbat", "wombat", "feed", "dodo")
        wanted = SearchFilter(role=role)
        return {word for word in words if everything(layout, word, wanted=wanted)}

    inline = {"thinking": {"quokka"}, "call": {"wombat", "feed"}, "tool": {"dodo"}}
    assert {role: found(role) for role in inline} == inline
    caller.extract(NAME, overrides={"trigger_types": ["thinking", "tool_call"]})
    assert names(everything(layout, "wombat")) == [(str(NAME), "e0", "extracted")]
    assert {role: found(role) for role in inline} == inline


def test_results_of_tools_are_found_inline_stored_and_packed(
    layout: Layout, caller: Caller
) -> None:
    add_session(layout.root, str(NAME), results("quokka", "numbat"))
    assert search(layout, "quokka") == [], "the index has no results of tools"
    assert names(everything(layout, "quokka")) == [(str(NAME), "e0", "transcript")]
    assert places(layout) == {SearchPlace.LIVE}
    caller.extract(NAME)
    assert names(everything(layout, "quokka")) == [(str(NAME), "e0", "extracted")]
    assert places(layout) == {SearchPlace.EXTRACTED}
    age(layout)
    clean(layout)
    assert packs(layout)
    assert places(layout) == {SearchPlace.ARCHIVED}
    [hit] = everything(layout, "quokka")
    assert (hit.entry, hit.where, hit.index) == ("e0", "extracted", 1)
    assert [hit.snippet.text[slice(*match)] for match in hit.snippet.matches] == ["quokka"]
    assert [one.entry for one in everything(layout, "numbat", only=NAME)] == ["e1"]


def test_a_session_that_is_gone_is_searched_in_its_copy(layout: Layout, clock: Clock) -> None:
    path = add_session(layout.root, str(NAME), results("quokka"))
    set_idle(path, 2 * DAY)
    keep(layout, clock)
    path.unlink()
    assert names(everything(layout, "quokka")) == [(str(NAME), "e0", "transcript")]
    assert places(layout) == {SearchPlace.GONE}


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize(
    ("words", "is_there"),
    [
        ("QUOKKA", True),
        ('"quokka lives"', True),
        ('"lives quokka"', False),
        ("quok*", True),
        ("quok", False),
        ("UBER cafe", True),
        ("über CAFÉ", True),
        ("語の", True),
        ("の語", False),
        ("quokka nothing", False),
        ("red", True),
        ("error line", True),
        ("sigmas ΣΊΓΜΑΣ", True),
    ],
)
def test_words_mean_what_they_mean_to_the_index(
    layout: Layout, words: str, *, is_there: bool, ascii_only: bool
) -> None:
    text = "A Quokka lives\nin the Über-Cafe\u0301 日本語の \x1b[31mred\x1b[0m error\tline"
    text += " sigmas σίγμας"
    line = json.dumps(entry(7, "user", text), ensure_ascii=ascii_only).encode() + b"\n"
    other = jsonl(*(entry(number, "user", f"other {number}") for number in range(20, 40)))
    add_session(layout.root, str(NAME), jsonl(HEADER) + other + line + other)
    wanted = [(str(NAME), "e7", "transcript")] if is_there else []
    assert names(everything(layout, words)) == wanted
    assert names(search(layout, words)) == wanted


def test_lines_that_nobody_understands_are_searched_too(layout: Layout) -> None:
    content = jsonl(HEADER) + b'broken {"json": dodo\n\xff\xfe not utf8 thylacine'
    add_session(layout.root, str(NAME), content)
    assert [hit.index for hit in everything(layout, "dodo")] == [1]
    assert [hit.index for hit in everything(layout, "thylacine")] == [2]


def fill(layout: Layout, caller: Caller, count: int = 3) -> set[tuple[str, str | None]]:
    """Sessions with text in all places; the entries that say `quokka`."""
    for number in range(count):
        name = SessionName("main", f"s{number}")
        add_session(layout.root, str(name), results("quokka", "quokka", "quokka"))
        caller.extract(name)
        if number % 2:
            age(layout)
            clean(layout)
    return {(f"main/s{number}", f"e{one}") for number in range(count) for one in range(3)}


def test_it_goes_on_where_it_stopped(layout: Layout, caller: Caller) -> None:
    wanted = fill(layout, caller)
    place, found, pages, scanned = None, list[tuple[str, str | None]](), 0, -1
    while True:
        done = FullScan(layout, "quokka", stopping=lambda: True).run(place)
        found += [(str(hit.session), hit.entry) for hit in done.hits]
        pages += 1
        assert scanned <= done.scanned <= done.total
        scanned = done.scanned
        if done.place is None:
            break
        place = ScanPosition.loads(done.place.dumps())
    assert sorted(found) == sorted(wanted), "each once"
    assert pages > 6, "a piece at a time"
    assert done.scanned == done.total


def test_pages_of_few_hits_leave_none_out(layout: Layout, caller: Caller) -> None:
    wanted = fill(layout, caller)
    place, found = None, list[tuple[str, str | None]]()
    while True:
        done = FullScan(layout, "quokka", limit=2).run(place)
        assert len(done.hits) <= 2
        found += [(str(hit.session), hit.entry) for hit in done.hits]
        if (place := done.place) is None:
            break
    assert sorted(found) == sorted(wanted), "each once"


def test_an_entry_without_a_time_is_as_old_as_its_file_here_and_in_the_index(
    layout: Layout,
) -> None:
    timeless = entry(0, "user", "quokka") | {"timestamp": None}
    path = add_session(layout.root, str(NAME), jsonl(HEADER, timeless, entry(1, "assistant", "")))
    os.utime(path, (1e9, 1e9))
    for wanted, is_there in (
        (SearchFilter(since=1e9), True),
        (SearchFilter(since=1e9 + 1), False),
        (SearchFilter(until=1e9), False),
    ):
        found = [hit.entry for hit in everything(layout, "quokka", wanted=wanted)]
        assert found == [hit.entry for hit in search(layout, "quokka", wanted=wanted)]
        assert found == ["e0"] * is_there


def test_a_session_that_is_written_to_meanwhile_is_not_left_out(layout: Layout) -> None:
    for number, word in enumerate(("numbat", "quokka", "bilby")):
        path = add_session(layout.root, f"main/s{number}", results(word))
        os.utime(path, (1e9 + number, 1e9 + number))
    done = FullScan(layout, "quokka", stopping=lambda: True).run()
    assert done.place is not None
    path = layout.session_file(SessionName("main", "s1"))
    with path.open("ab") as file:  # from now on it is the newest
        file.write(jsonl(entry(50, "user", "later")))
    os.utime(path, ns=(done.place.began + 10**9, done.place.began + 10**9))
    rest = FullScan(layout, "quokka").run(done.place)
    assert [str(hit.session) for hit in rest.hits] == ["main/s1"]


def test_enough_is_enough_and_the_newest_come_first(layout: Layout) -> None:
    for number in range(5):
        path = add_session(layout.root, f"main/s{number}", results("quokka"))
        os.utime(path, (1e9 + number, 1e9 + number))
    hits = everything(layout, "quokka", limit=2)
    assert [str(hit.session) for hit in hits] == ["main/s4", "main/s3"]
    assert [str(hit.session) for hit in everything(layout, "quokka", agent="nobody")] == []


def test_what_cannot_be_read_is_told_and_stops_nothing(layout: Layout, caller: Caller) -> None:
    wanted = fill(layout, caller)
    [pack] = layout.archive_dir(SessionName("main", "s1")).glob("*.zst")
    content = bytearray(pack.read_bytes())
    content[20:60] = b"\xff" * 40
    pack.write_bytes(content)
    told: list[tuple[SessionName, BsdError]] = []
    done = FullScan(layout, "quokka", failed=lambda *what: told.append(what)).run()
    found = {(str(hit.session), hit.entry) for hit in done.hits}
    assert found == {one for one in wanted if one[0] != "main/s1"}
    [(name, problem)] = told
    assert str(name) == "main/s1"
    assert "damaged" in problem.message


@pytest.mark.parametrize("cursor", ["", "zz", "00", "5b5d", "5b312c325d", b'{"began":1}'.hex()])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        ScanPosition.loads(cursor)


def test_there_is_nothing_to_search(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    done = FullScan(Layout(tmp_path), "quokka").run()
    assert (done.hits, done.place, done.total) == ([], None, 0)
    with pytest.raises(Invalid, match="no word"):
        FullScan(Layout(tmp_path), "()").run()

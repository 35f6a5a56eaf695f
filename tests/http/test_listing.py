"""Finding sessions by their content, and cursors that bsd did not issue."""

from __future__ import annotations

import base64
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsd.actions.context import ActionContext
from bsd.actions.extract import extract
from bsd.actions.list_sessions import (
    Cursor,
    SessionOrder,
    Sessions,
    list_all_sessions,
    list_sessions,
)
from bsd.core.config_file import ConfigService
from bsd.core.errors import Invalid
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents.programs import layout_of
from tests.openclaw_tree import add_session
from tests.searching import read_all
from tests.session_files import Clock, make_caller, sample

STALE = {"stale": True, "active": False}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    for name in ("main/a", "main/b", "main/c", "second/a"):
        add_session(tmp_path, name, b"{}\n")
    return Layout(tmp_path)


def page(layout: Layout, now: float = 0.0, **wanted: Any) -> Sessions:
    config = ConfigService(layout.config_file, create=False)
    context = ActionContext(layout=layout, config=config, budget=RetryBudget(clock=lambda: now))
    return list_sessions(context, **wanted)


class Find:
    """Finds sessions; the test sets their text."""

    def __init__(self, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
        self._layout = layout
        self._patch = monkeypatch

    def __call__(self, *by_text: str, **wanted: Any) -> set[str]:
        asked: list[tuple[str, str | None]] = []

        def find_text(_: Layout, words: str, agent: str | None) -> set[SessionName]:
            asked.append((words, agent))
            return {SessionName.parse(name) for name in by_text}

        self._patch.setattr("bsd.maintenance.search.sessions_with", find_text)
        answer = page(self._layout, **wanted)
        words = wanted.get("words")
        assert asked == ([(words, wanted.get("agent"))] if words else [])
        return {one.session for one in answer.sessions}


@pytest.fixture
def find(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Find:
    return Find(layout, monkeypatch)


def test_what_the_text_says_counts_as_much_as_the_name(find: Find) -> None:
    assert find("main/b", "main/gone", words="second") == {"second/a", "main/b"}
    assert find("second/a", "main/c", agent="main", words="x") == {"main/c"}


def test_without_words_nobody_searches(find: Find) -> None:
    assert len(find()) == 4


def test_stale_and_active_are_asked_for_like_a_status(layout: Layout) -> None:
    old = layout.agents / "main" / "sessions" / "a.jsonl"
    os.utime(old, (1000, 1000))
    newest = (layout.agents / "main" / "sessions" / "b.jsonl").stat().st_mtime

    def names(status: str) -> set[str]:
        answer = page(layout, newest + 60, status=status)
        return {one.session for one in answer.sessions if one.is_stale is STALE[status]}

    assert names("stale") == {"main/a"}
    assert names("active") == {"main/b", "main/c", "second/a"}


def test_archived_sessions_are_asked_for_by_that_word(tmp_path: Path) -> None:
    source = SourceSettings(kind="codex", path=tmp_path / "sessions")
    layout = layout_of(tmp_path / "root", [source])
    stem = "rollout-2026-05-01T10-11-12-01997e76-d124-7592-9cac-2ec05abbca0"
    for number, place in enumerate(("sessions/2026/05/01", "archived_sessions")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / f"{stem}{number}.jsonl").write_bytes(b"{}\n")
    [one] = page(layout, status="archived").sessions
    assert (one.session, one.status) == (f"codex:2026:05:01/{stem}1", "archived")


def _sortable(tmp_path: Path) -> Layout:
    """Make sessions of different sizes, costs and savings: `cheap` is large, `dear` is small."""
    cost = {"input": 1, "output": 2, "totalTokens": 30, "cost": {"total": 2.5}}
    answer: dict[str, Any] = {"role": "assistant", "content": [], "model": "m"}
    usages: dict[str, Any] = {
        "dear": {**answer, "usage": cost},
        "cheap": {**answer, "usage": {**cost, "cost": {"total": 0.25}}, "padding": "x" * 5000},
        "tokens": {**answer, "usage": {"input": 10**9, "totalTokens": 10**9}},
    }
    for name, message in usages.items():
        line = {"type": "message", "id": "e1", "message": message}
        add_session(tmp_path, f"main/{name}", HEADER_LINE + json.dumps(line).encode() + b"\n")
    add_session(tmp_path, "second/saved", sample(8))
    layout = Layout(tmp_path)
    extract(make_caller(layout, Clock()), SessionName("second", "saved"))
    read_all(layout)
    return layout


HEADER_LINE = b'{"type":"session","version":3,"id":"s"}\n'


def test_sessions_are_listed_by_size_saving_and_cost(tmp_path: Path) -> None:
    layout = _sortable(tmp_path)

    def names(sort: SessionOrder) -> list[str]:
        return [one.id for one in page(layout, sort=sort).sessions]

    assert names(SessionOrder.SIZE)[:2] == ["saved", "cheap"]
    assert names(SessionOrder.SAVED)[0] == "saved"
    found = page(layout, sort=SessionOrder.COST, agent="main").sessions
    assert [(one.id, one.cost) for one in found] == [
        ("dear", 2.5),
        ("cheap", 0.25),
        ("tokens", None),
    ]
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))
    every = list_all_sessions(context, sort=SessionOrder.SIZE, limit=2)
    assert [one.id for one in every.sessions] == names(SessionOrder.SIZE)[:2]
    [first, *_] = list_all_sessions(context, sort=SessionOrder.SAVED, figures=False).sessions
    assert first.saved_bytes


def test_paging_by_size_leaves_none_out_that_grows_meanwhile(tmp_path: Path) -> None:
    for number in range(6):
        add_session(tmp_path, f"main/s{number}", b"{}\n" * (number + 1))
    layout = Layout(tmp_path)
    first = page(layout, sort=SessionOrder.SIZE, limit=2)
    assert [one.id for one in first.sessions] == ["s5", "s4"]
    grown = layout.agents / "main" / "sessions" / "s1.jsonl"
    grown.write_bytes(b"{}\n" * 100)  # it would now be on the first page
    rest: list[str] = []
    cursor = first.next
    while cursor is not None:
        more = page(layout, sort=SessionOrder.SIZE, limit=2, cursor=cursor)
        rest += [one.id for one in more.sessions]
        cursor = more.next
    assert rest == ["s3", "s2", "s0", "s1"]


@given(st.integers(0, 2**63), st.sampled_from((0, 1)), st.integers(-(2**63), 0), st.text())
def test_a_cursor_comes_back_as_it_went(began: int, part: int, updated: int, name: str) -> None:
    cursor = Cursor(began, (part, updated, name))
    assert Cursor.read(cursor.write()) == cursor


@given(st.text() | st.from_regex(r"[A-Za-z0-9_=-]*", fullmatch=True))
def test_no_other_text_is_more_than_refused(text: str) -> None:
    with suppress(Invalid):
        cursor = Cursor.read(text)
        assert Cursor.read(cursor.write()) == cursor


@pytest.mark.parametrize("content", [None, [], {}, [1, 2, 3], [1, 2, 3, 4], [True, 0, 0, "a"]])
def test_a_cursor_of_other_content_is_refused(content: object) -> None:
    text = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
    with pytest.raises(Invalid):
        Cursor.read(text)

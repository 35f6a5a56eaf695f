"""Titles and dates in the list: from the index if it has read a session, otherwise from the
file's ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.list_sessions import list_sessions, session_row
from bsd.core.config_file import ConfigService
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.maintenance import catalog, titles
from bsd.maintenance.search import by_title, sessions_with
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from tests.actions.performed import Caller
from tests.openclaw_tree import add_session, set_idle
from tests.searching import entry, read_all
from tests.session_files import HEADER, jsonl

FILLER = "filling " * 100
DAY = 86_400.0


def talk(prompt: str, day: int = 1, *more: dict[str, Any]) -> bytes:
    entries = [entry(n, "assistant", f"seen {n}", day) for n in range(2, 8)]
    old = entry(1, "toolResult", FILLER, day)
    return jsonl(HEADER, entry(0, "user", prompt, day), old, *entries, *more)


def info(layout: Layout, name: str = "main/s") -> catalog.ListedSession:
    return next(one for one in catalog.sessions(layout) if str(one.name) == name)


def unread(_layout: Layout) -> None:
    """No session has been read yet."""


READ: list[Callable[[Layout], None]] = [unread, read_all]


def test_of_many_sessions_most_are_read_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list asks for all titles in turn: dropping the oldest request kept no title at all."""
    read: list[SessionName] = []
    ends = titles._read_ends

    def counted(layout: Layout, name: SessionName) -> titles.Ends:
        read.append(name)
        return ends(layout, name)

    monkeypatch.setattr(titles, "_read_ends", counted)
    monkeypatch.setattr(titles, "_MOST_REMEMBERED", 3)
    prompts = {f"s{n}": f"prompt {n}" for n in range(5)}
    for name, prompt in prompts.items():
        set_idle(add_session(layout.root, f"main/{name}", talk(prompt)))
    for most in (5, 2, 2):
        read.clear()
        listed = {one.name.session: one.title for one in catalog.sessions(layout)}
        assert listed == prompts
        assert len(set(read)) == most
    read_all(layout)
    assert {one.name.session: one.title for one in catalog.sessions(layout)} == prompts
    read.clear()
    assert not titles._ends_read(layout)


def test_files_too_old_for_the_first_page_are_not_opened(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may be a day older than its newest message, or many days newer."""
    read: list[str] = []
    ends = titles._read_ends

    def noted(layout: Layout, name: SessionName) -> titles.Ends:
        read.append(name.session)
        return ends(layout, name)

    monkeypatch.setattr(titles, "_read_ends", noted)
    first = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
    # The day of the newest message, and that of the file.
    days: dict[str, tuple[int, float]] = {f"s{day:02}": (day, day) for day in range(1, 21)}
    days |= {"touched": (3, 25.0), "older": (20, 19.5), "beyond": (22, 19.0)}
    for name, (day, written) in days.items():
        path = add_session(layout.root, f"main/{name}", talk(name, day))
        os.utime(path, (first + (written - 1) * DAY + 3600,) * 2)
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file))
    whole = [each.id for each in list_sessions(context, limit=30).sessions]
    assert whole[:4] == ["older", "s20", "beyond", "s19"]
    assert len(whole) == len(days)
    assert set(read) == set(days)
    read.clear()
    titles._ends_read(layout).clear()
    page = list_sessions(context, limit=3)
    assert [each.id for each in page.sessions] == whole[:3]
    assert set(read) == {"touched", "older", "beyond", "s20", "s19", "s18"}
    pages, cursor = whole[:3], page.next
    while cursor:
        more = list_sessions(context, limit=9, cursor=cursor)
        pages, cursor = pages + [each.id for each in more.sessions], more.next
    assert pages == whole


@pytest.mark.parametrize("read", READ)
def test_a_session_is_called_by_its_first_prompt(
    layout: Layout, read: Callable[[Layout], None]
) -> None:
    add_session(layout.root, "main/s", talk("mend the roof"))
    read(layout)
    assert info(layout).title == "mend the roof"
    assert session_row(info(layout), 0.0).title == "mend the roof"


@pytest.mark.parametrize("read", READ)
def test_a_name_counts_more_and_the_registry_most(
    layout: Layout, read: Callable[[Layout], None]
) -> None:
    named = {"type": "session_info", "id": "i", "name": "Roof"}
    add_session(layout.root, "main/s", talk("mend the roof", 1, named))
    read(layout)
    assert info(layout).title == "Roof"
    registry = layout.agents / "main/sessions/sessions.json"
    registry.write_text(json.dumps({"agent:main:x": {"sessionId": "s", "subject": "Leak"}}))
    assert info(layout).title == "Leak"
    assert info(layout).label == "agent:main:x"


@pytest.mark.parametrize("read", READ)
def test_ours_is_no_news(layout: Layout, read: Callable[[Layout], None]) -> None:
    """An extraction, a restoration and a copy change the file's time, not the session's."""
    path = add_session(layout.root, "main/s", talk("mend the roof", 5))
    config = ConfigService(layout.config_file)
    caller = Caller(layout=layout, config=config, budget=RetryBudget(wait=0.0, quiet=0.0))
    before = path.stat().st_mtime
    assert caller.extract(SessionName("main", "s")).status is Status.EXTRACTED
    assert path.stat().st_mtime > before
    read(layout)
    assert iso_utc(info(layout).updated) == "2026-02-05T00:07:00.000Z"
    os.utime(path)
    assert iso_utc(info(layout).updated) == "2026-02-05T00:07:00.000Z"


def context_of(layout: Layout) -> ActionContext:
    return ActionContext(layout=layout, config=ConfigService(layout.config_file, create=False))


@pytest.mark.parametrize("read", READ)
def test_the_newest_entry_comes_first_whatever_the_files_say(
    layout: Layout, read: Callable[[Layout], None]
) -> None:
    for day, name in ((3, "main/b"), (9, "main/a"), (5, "main/c")):
        path = add_session(layout.root, name, talk(name, day))
        os.utime(path, (time.time() - day * DAY, time.time() - day * DAY))
    read(layout)
    assert [one.name.session for one in catalog.sessions(layout)] == ["a", "c", "b"]
    told = list_sessions(context_of(layout), limit=2)
    assert [one.id for one in told.sessions] == ["a", "c"]
    told = list_sessions(context_of(layout), limit=2, cursor=told.next)
    assert ([one.id for one in told.sessions], told.next) == (["b"], None)


def test_without_times_the_files_time_counts(layout: Layout) -> None:
    path = add_session(layout.root, "main/s", b'{"__id":"1","type":"user","text":"hi"}\n')
    assert info(layout).updated == pytest.approx(path.stat().st_mtime)


@pytest.mark.parametrize("moment", ["9999-12-31T00:00:00Z", "1900-01-01T00:00:00Z", 1e300, -5])
def test_a_time_that_cannot_be_is_none(layout: Layout, moment: object) -> None:
    odd = entry(9, "user", "x") | {"timestamp": moment}
    path = add_session(layout.root, "main/s", jsonl({**HEADER, "timestamp": moment}, odd))
    assert info(layout).updated == pytest.approx(path.stat().st_mtime)


def test_a_session_larger_than_its_ends(layout: Layout) -> None:
    middle = [entry(n, "toolResult", "x" * 50_000, 2) for n in range(20)]
    last = entry(59, "toolResult", "y" * 300_000, 7)
    content = talk("mend the roof") + jsonl(*middle, entry(40, "user", "and now?", 3), last)
    add_session(layout.root, "main/s", content)
    assert info(layout).title == "mend the roof"
    assert iso_utc(info(layout).updated) == "2026-02-07T00:59:00.000Z"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\0", b"{}", b"[" * 900])
def test_what_cannot_be_read_has_no_title(layout: Layout, content: bytes) -> None:
    add_session(layout.root, "main/s", content)
    assert info(layout).title is None


def test_a_title_follows_what_is_written(layout: Layout) -> None:
    path = add_session(layout.root, "main/s", talk("mend the roof"))
    read_all(layout)
    with path.open("ab") as stream:
        stream.write(jsonl({"type": "session_info", "id": "i", "name": "Roof"}))
    assert info(layout).title == "Roof", "before the index has read it"
    read_all(layout)
    assert info(layout).title == "Roof"
    path.write_bytes(talk("paint the door"))
    set_idle(path)
    read_all(layout)
    assert info(layout).title == "paint the door"


def test_sessions_are_found_by_their_titles(layout: Layout) -> None:
    add_session(layout.root, "main/s", talk("mend the roof"))
    add_session(layout.root, "main/t", talk("paint the door"))
    registry = layout.agents / "main/sessions/sessions.json"
    registry.write_text(json.dumps({"agent:main:x": {"sessionId": "t", "label": "Zebra house"}}))

    def found(words: str) -> list[str]:
        told = list_sessions(context_of(layout), words=words)
        return [one.session for one in told.sessions]

    assert found("roof") == ["main/s"]
    assert found("ZEBRA") == ["main/t"]
    assert found("zebra roof") == []
    assert by_title(layout, "house zebra") == [(SessionName("main", "t"), "Zebra house")]
    assert by_title(layout, "roof", agent="main", limit=1) == [
        (SessionName("main", "s"), "mend the roof")
    ]
    assert sessions_with(layout, "zebra") == set(), "nobody wrote that"

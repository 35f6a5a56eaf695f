"""Sessions that begin in the files of other sessions: files that are gone, circles, the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bsd.actions.export import ExportFormat, export_session
from bsd.actions.list_entries import list_entries
from bsd.core.layout import SessionName
from bsd.core.zstd import zstd
from bsd.maintenance.archive_limit import ArchiveOverLimit
from bsd.maintenance.bring_back import bring_back
from bsd.maintenance.deleted_sessions import find_deleted
from bsd.maintenance.snapshots import SnapshotScope, take_snapshots
from bsd.sessions.idle import RetryBudget
from bsd.store.snapshots import delete_snapshot, snapshots_of
from tests.openclaw_tree import set_idle
from tests.session_files import Clock, make_caller
from tests.transcripts.agents.sources import CODEX
from tests.transcripts.agents.sources.codex import codex_line, codex_meta
from tests.transcripts.agents.sources.tree import Home, raw

PARENT = CODEX.session[-36:]
FORK = f"{PARENT[:-1]}9"


def said(number: int, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return codex_line(number, "response_item", type="message", role="user", content=content)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A thread with two prompts, of which a fork has the first and a prompt of its own."""
    lines = [codex_meta(history_mode="paginated"), said(1, "shared words"), said(2, "later words")]
    home = Home.of(CODEX, tmp_path, lines)
    write_fork(home, PARENT, len(raw(lines[:2])))
    return home


def fork_path(home: Home) -> Path:
    return home.path.with_name(home.path.name.replace(PARENT, FORK))


def fork_name(home: Home) -> SessionName:
    return SessionName(home.name.agent, fork_path(home).stem)


def write_fork(home: Home, thread: Any, end: Any) -> None:
    base = {"thread_id": thread, "end_byte_offset": end, "end_ordinal_exclusive": 2}
    meta = codex_meta(history_mode="paginated", history_base=base, forked_from_id=PARENT)
    meta["payload"]["id"] = FORK
    fork_path(home).write_bytes(raw([meta, said(3, "own words")]))
    set_idle(fork_path(home))


def exported(home: Home, clock: Clock, file: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the prompts in an export of the fork, and its problems."""
    caller = make_caller(home.layout, clock)
    answer = export_session(caller, fork_name(home), ExportFormat.MARKDOWN, file)
    text = file.read_text()
    words = [word for word in ("shared words", "own words", "later words") if word in text]
    return sorted(words, key=text.rfind), answer.problems  # the title comes first


@pytest.mark.parametrize("form", ["plain", "compressed", "archived"])
def test_an_export_begins_where_the_session_begins(
    home: Home, clock: Clock, tmp_path: Path, form: str
) -> None:
    if form == "compressed":
        packed = home.path.with_name(f"{home.path.name}.zst")
        packed.write_bytes(zstd.compress(home.path.read_bytes()))
        home.path.unlink()
    if form == "archived":
        away = home.source.parent / "archived_sessions"
        away.mkdir()
        home.path.rename(away / home.path.name)
    assert exported(home, clock, tmp_path / "f.md") == (["shared words", "own words"], ())
    begun = list_entries(make_caller(home.layout, clock), fork_name(home)).begins_in
    assert begun is not None
    assert begun.session == str(home.name)


@pytest.mark.parametrize(
    ("thread", "end", "problem"),
    [
        ("0" * 8 + PARENT[8:], 10, "is gone"),
        (FORK, 10, "begins in itself"),
        (PARENT, 10**9, None),
        ("../../" + PARENT, 10, None),
        (7, 10, None),
        (PARENT, -1, None),
    ],
)
def test_a_header_of_any_content_does_no_harm(
    home: Home, clock: Clock, tmp_path: Path, thread: Any, end: Any, problem: str | None
) -> None:
    write_fork(home, thread, end)
    words, problems = exported(home, clock, tmp_path / "f.md")
    assert "own words" in words
    assert [problem in text for text in problems if problem] == [True] * bool(problem)
    assert len(list_entries(make_caller(home.layout, clock), fork_name(home)).entries) == 2


def test_copies_in_the_archive_go_after_those_that_need_them(home: Home) -> None:
    scope, budget = SnapshotScope(at_once=True), RetryBudget()
    assert take_snapshots(home.layout, "30d", budget, scope=scope).sessions == 2
    both = home.path, fork_path(home)
    whole = [path.read_bytes() for path in both]
    for path in both:
        path.unlink()
    take_snapshots(home.layout, "30d", budget)  # which notes that they are gone
    going = list(ArchiveOverLimit(home.layout, 0).going.values())
    assert [part.gone and part.gone.name for part in going] == [fork_name(home), home.name]

    answer = bring_back(home.layout, find_deleted(home.layout, str(fork_name(home))))
    assert answer.sessions == [str(fork_name(home)), str(home.name)]
    assert [path.read_bytes() for path in both] == whole

    for path in both:
        path.unlink()
    [copy] = snapshots_of(home.layout, home.name)
    delete_snapshot(copy.directory)
    answer = bring_back(home.layout, find_deleted(home.layout, str(fork_name(home))))
    assert answer.sessions == [str(fork_name(home))]
    assert "begins in" in (answer.advice or "")

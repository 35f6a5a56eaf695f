"""Stores without a transcript are named, with the place where it may be; that is no fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.core.errors import LeftAlone, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.doctor import Level, examine
from bsd.maintenance.leftovers import StoreWithoutTranscript, stores_without_transcript
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.planning.result import Status
from bsd.sessions.idle import RetryBudget
from tests.openclaw_tree import add_session
from tests.session_files import Clock, make_caller, sample
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, KINDS
from tests.transcripts.agents.sources.codex import codex_meta
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, raw

THREAD = CODEX.session[-36:]


@pytest.fixture(params=KINDS, ids=[kind.kind for kind in KINDS])
def home(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Home:
    return extracted(request.param, tmp_path, clock)


@pytest.fixture
def codex(tmp_path: Path, clock: Clock) -> Home:
    return extracted(CODEX, tmp_path, clock)


def extracted(kind: Kind, top: Path, clock: Clock) -> Home:
    home = Home.of(kind, top, kind.lines())
    done = make_caller(home.layout, clock).extract(home.name, overrides=EVERYTHING)
    assert done.status is Status.EXTRACTED
    assert list(stores_without_transcript(home.layout)) == []
    return home


def lone(layout: Layout) -> StoreWithoutTranscript:
    [store] = stores_without_transcript(layout)
    return store


def test_a_deleted_transcript_makes_nothing_red(home: Home) -> None:
    home.path.unlink()
    found = verify(home.layout)
    assert found.clean
    [finding] = found.findings
    assert (finding.kind, finding.where, finding.harmless) == (
        "no_transcript",
        str(home.name),
        True,
    )
    stored = [path for path in home.layout.store_dir(home.name).iterdir() if path.stem != "index"]
    assert f"{len(stored)} stored files" in finding.message
    assert "has deleted it" in finding.message
    said = [each for each in examine(home.layout) if each.name == "store"]
    assert [each.level for each in said] == [Level.OK, Level.OK]
    assert "1 store" in said[0].message


def test_a_directory_that_was_renamed(home: Home) -> None:
    """Sessions of Claude Code and pi are named after the project directory, which people rename."""
    other = home.place("09" if home.kind is CODEX else "-home-me-renamed-")
    other.parent.mkdir(exist_ok=True)
    home.path.parent.rename(other)
    store = lone(home.layout)
    assert store.session == home.name
    assert f"a session of the same name is {home.kind.kind}:" in store.where[0]
    assert f"{home.path.parent} is gone" in store.where[-1]


def compress(home: Home) -> None:
    home.path.rename(home.path.with_name(f"{home.path.name}.zst"))


def compress_archived(home: Home) -> None:
    archived = home.source.parent / "archived_sessions"
    archived.mkdir()
    home.path.rename(archived / f"{home.path.name}.zst")


@pytest.mark.parametrize("how", [compress, compress_archived])
def test_a_compressed_thread_has_its_store_and_its_content_is_kept(
    codex: Home, how: Callable[[Home], None]
) -> None:
    how(codex)
    assert not list(stores_without_transcript(codex.layout))
    with pytest.raises(LeftAlone):
        Trash(codex.layout, "14d").delete(codex.name, permanent=True)
    assert codex.layout.store_dir(codex.name).is_dir()


def test_a_thread_that_goes_on_in_other_files(codex: Home) -> None:
    """A fork names its parent; a file that continues a thread has the thread's id."""
    later = codex.path.with_name(f"{CODEX.session.replace('18-22', '19-00')}_{THREAD}.jsonl")
    later.write_bytes(raw([codex_meta(history_mode="paginated")]))
    meta = codex_meta(forked_from_id=THREAD)
    meta["payload"]["id"] = THREAD.replace("0", "1")
    fork = codex.path.with_name(f"{CODEX.session.replace(THREAD, meta['payload']['id'])}.jsonl")
    fork.write_bytes(raw([meta]))
    codex.path.unlink()
    [where] = lone(codex.layout).where
    assert where.startswith("the same conversation continues in ")
    assert all(path.stem in where for path in (later, fork))


def test_a_file_that_was_given_another_name(tmp_path: Path, clock: Clock) -> None:
    home = extracted(CLAUDE_CODE, tmp_path, clock)
    other = home.path.with_name(f"{home.path.stem[:-1]}f.jsonl")
    home.path.rename(other)
    [where] = lone(home.layout).where
    assert where == f"the same conversation continues in {home.name.agent}/{other.stem}"


def test_a_source_that_is_named_no_longer(home: Home) -> None:
    home.layout.agents.mkdir()
    [where] = lone(Layout(home.layout.root)).where
    assert where == f"no source is named {home.kind.kind} in the present settings"


def test_what_a_reset_put_aside_and_what_is_in_the_trash(layout: Layout, clock: Clock) -> None:
    path = add_session(layout.root, "main/s1", sample(8, 1))
    caller = make_caller(layout, clock)
    name = SessionName("main", "s1")
    assert caller.extract(name, overrides={"keep_recent": 0}).status is Status.EXTRACTED
    kept = layout.root / "kept"
    shutil.copytree(layout.store_dir(name), kept)
    aside = path.with_name(f"{path.name}.reset.2026-01-01T00-00-00.000Z")
    path.rename(aside)
    assert lone(layout).where == (f"its program keeps it as {aside}",)
    aside.rename(path)
    clock.ahead += 60
    Trash(layout, "14d", budget=RetryBudget(clock=clock.now, sleep=clock.sleep)).delete(name)
    assert list(stores_without_transcript(layout)) == []
    kept.rename(layout.store_dir(name))  # as a copy of a backup would be
    assert "trash" in lone(layout).where[0]


def test_long_names_empty_stores_and_what_is_no_store(layout: Layout) -> None:
    (layout.extracted / "main_empty").mkdir(parents=True)
    (layout.extracted / "main_empty" / "index.json").write_text("{}")
    (layout.extracted / "file").touch()
    name = SessionName("main", "n" * 220)
    path = layout.agents / "main" / "sessions" / f"{name.session}.jsonl"
    path.write_bytes(b"{}\n")
    store = layout.store_dir(name)
    store.mkdir(parents=True)
    (store / "0001_tool_result.json").write_text(json.dumps({"id": "e"}))
    assert list(stores_without_transcript(layout)) == []
    path.unlink()
    assert (lone(layout).session, lone(layout).where) == (None, ())
    found = verify(layout)
    assert (found.clean, [each.where for each in found.findings]) == (True, [str(store)])


def test_what_is_left_of_a_thread_can_be_deleted_and_a_thread_cannot(codex: Home) -> None:
    trash = Trash(codex.layout, "14d")
    with pytest.raises(LeftAlone):
        trash.delete(codex.name, permanent=True)
    codex.path.unlink()
    trash.delete(codex.name)
    assert list(stores_without_transcript(codex.layout)) == []
    trash.restore(str(codex.name))
    assert lone(codex.layout).session == codex.name
    trash.delete(codex.name, permanent=True)
    assert list(stores_without_transcript(codex.layout)) == []
    with pytest.raises(NotFound):
        trash.delete(codex.name, permanent=True)

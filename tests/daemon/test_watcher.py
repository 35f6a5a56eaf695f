"""Watching real directories: every kind of change of a session is noticed, or reported as
missed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from watchdog.events import DirDeletedEvent

from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.daemon import watcher as watcher_module
from bsd.daemon.directories import Trouble
from bsd.daemon.watcher import CHECK_SECONDS, Watcher
from bsd.transcripts.agents.programs import layout_of
from tests.daemon.told import NAME, Heard, append, file_of, is_watched, settle, with_a_session
from tests.needs import as_ordinary_user
from tests.openclaw_database import add_events, conversation, database_path, writing
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.skipif(sys.platform != "linux", reason="needs inotify"),
]


@pytest.fixture
def layout(layout: Layout) -> Layout:
    return with_a_session(layout)


def test_an_append_is_noticed(watcher: Watcher, heard: Heard, layout: Layout) -> None:
    append(file_of(layout, NAME))
    heard.wait_for_hint(NAME)


def test_an_atomic_save_is_noticed(watcher: Watcher, heard: Heard, layout: Layout) -> None:
    path = file_of(layout, NAME)
    draft = path.with_name("s1.jsonl.tmp")
    draft.write_bytes(b"{}\n")
    draft.replace(path)
    heard.wait_for_hint(NAME)


def test_a_file_from_elsewhere_is_noticed(watcher: Watcher, heard: Heard, layout: Layout) -> None:
    draft = layout.root / "draft"
    draft.write_bytes(b"{}\n")
    draft.replace(file_of(layout, NAME))
    heard.wait_for_hint(NAME)


def test_a_new_and_a_removed_session_are_noticed(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    other = SessionName("main", "s2-topic-3")
    append(file_of(layout, other))
    heard.wait_for_hint(other)
    file_of(layout, NAME).unlink()
    heard.wait_for_hint(NAME)


def test_a_new_link_to_an_agent_is_noticed(watcher: Watcher, heard: Heard, layout: Layout) -> None:
    before = heard.attentions
    layout.agents.joinpath("linked").symlink_to("main")
    heard.wait_for(lambda: heard.attentions > before)


def test_a_session_renamed_away_is_noticed(watcher: Watcher, heard: Heard, layout: Layout) -> None:
    path = file_of(layout, NAME)
    path.rename(path.with_name("s1.jsonl.reset.2026-01-01"))
    heard.wait_for_hint(NAME)


def test_files_that_are_no_sessions_and_our_own_reading_are_not(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    sessions = file_of(layout, NAME).parent
    for name in (
        "s1.jsonl.lock",
        "sessions.json",
        "sessions.json.tmp",
        "s1.trajectory.jsonl",
        "s1.checkpoint.0af3.jsonl",
        "s1.jsonl.bak-1-2",
        ".hidden.jsonl",
        "no name.jsonl",
    ):
        append(sessions / name)
    append(layout.agents / "main" / "agent" / "s1.jsonl")
    for _ in range(10):
        file_of(layout, NAME).read_bytes()
        list(sessions.iterdir())
    last = SessionName("main", "last")
    append(file_of(layout, last))
    heard.wait_for_hint(last)
    assert set(heard.hints) == {last}


def test_a_new_agent_is_noticed_and_what_it_wrote_at_once_too(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    name = SessionName("fresh", "s1")
    file_of(layout, name).parent.mkdir(parents=True)
    append(file_of(layout, name))  # before any watch exists: only a scan can find it
    heard.wait_for(lambda: heard.attentions)
    settle(watcher, heard, lambda: heard.rescans and is_watched(file_of(layout, name).parent))
    heard.clear()
    append(file_of(layout, name))
    heard.wait_for_hint(name)


def test_sessions_that_appear_later_in_an_agent_are_noticed(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    (layout.agents / "slow").mkdir()
    settle(watcher, heard, lambda: watcher.health.watched == watcher.health.dirs == 5)
    name = SessionName("slow", "s1")
    file_of(layout, name).parent.mkdir()
    settle(watcher, heard, lambda: watcher.health.watched == watcher.health.dirs == 6)
    append(file_of(layout, name))
    heard.wait_for_hint(name)


@pytest.mark.parametrize("what", ["sessions", "agent", "agents", "root"])
@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_directory_made_anew_is_watched_anew(
    watcher: Watcher, heard: Heard, layout: Layout, what: str, how: str
) -> None:
    sessions = file_of(layout, NAME).parent
    top = {
        "sessions": sessions,
        "agent": sessions.parent,
        "agents": layout.agents,
        "root": layout.root,
    }[what]
    if how == "deleted":
        shutil.rmtree(top)
    else:
        top.rename(layout.root.with_name("elsewhere"))
    sessions.mkdir(parents=True)
    settle(watcher, heard, lambda: watcher.health.watched == watcher.health.dirs == 4)
    heard.clear()

    def appended() -> bool:
        append(file_of(layout, NAME))
        return NAME in heard.hints

    # The new directory may have the inode of the old directory: until the kernel reports the
    # deletion, the dead watch looks alive. The next look arms it again.
    settle(watcher, heard, appended)


def test_without_agents_it_waits_for_them(tmp_path: Path, heard: Heard) -> None:
    layout = Layout(tmp_path / "root")
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        [problem] = watcher.health.problems
        assert problem.kind is Trouble.ROOT_MISSING
        assert str(layout.root) in str(problem)
        assert "--root" in problem.remedy
        layout.root.mkdir()
        watcher.step(CHECK_SECONDS)
        assert [each.kind for each in watcher.health.problems] == [Trouble.AGENTS_MISSING]
        file_of(layout, NAME).parent.mkdir(parents=True)
        heard.wait_for(lambda: heard.attentions)  # the root is watched for it
        settle(watcher, heard, lambda: is_watched(file_of(layout, NAME).parent))
        append(file_of(layout, NAME))
        heard.wait_for_hint(NAME)
        assert watcher.health.problems == ()
    finally:
        watcher.close()


def test_an_agent_through_a_link_is_watched_under_its_name(layout: Layout, heard: Heard) -> None:
    elsewhere = layout.root / "shared"
    (elsewhere / "sessions").mkdir(parents=True)
    (layout.agents / "linked").symlink_to(elsewhere)
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        append(elsewhere / "sessions" / "s9.jsonl")
        heard.wait_for_hint(SessionName("linked", "s9"))
    finally:
        watcher.close()


def test_a_directory_that_is_nobody_s_any_more_is_watched_no_longer(
    layout: Layout, heard: Heard
) -> None:
    elsewhere = layout.root / "shared"
    (elsewhere / "sessions").mkdir(parents=True)
    link = layout.agents / "linked"
    link.symlink_to(elsewhere)
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        assert is_watched(elsewhere / "sessions")
        link.unlink()
        watcher.step(CHECK_SECONDS)
        assert not is_watched(elsewhere / "sessions")
    finally:
        watcher.close()


def test_a_link_out_of_the_root_is_refused_and_said(
    tmp_path: Path, layout: Layout, heard: Heard
) -> None:
    outside = tmp_path / "outside" / "sessions"
    outside.mkdir(parents=True)
    (layout.agents / "evil").symlink_to(outside.parent)
    watcher = heard.watcher(layout)
    try:
        watcher.step(0.0)
        [problem] = watcher.health.problems
        assert problem.kind is Trouble.OUTSIDE
        append(outside / "s1.jsonl")
        append(file_of(layout, NAME))
        heard.wait_for_hint(NAME)
        assert SessionName("evil", "s1") not in heard.hints
    finally:
        watcher.close()


def test_health_counts_what_is_watched(watcher: Watcher, heard: Heard, layout: Layout) -> None:
    # root, agents/, main/ and main/sessions/; not main/agent/
    assert (watcher.health.dirs, watcher.health.watched) == (4, 4)
    assert watcher.health.problems == ()
    (layout.agents / "other" / "sessions").mkdir(parents=True)
    settle(watcher, heard, lambda: watcher.health.watched == 6)
    seen = watcher.rearm(1007.0)
    assert (seen.at, seen.dirs, seen.watched, seen.problems) == (1007.0, 6, 6, ())


def test_a_directory_that_watchdog_has_not_come_to_yet_is_looked_at_soon(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(watcher_module, "watched_inodes", set)
        due = watcher.step(CHECK_SECONDS)
        assert [each.kind for each in watcher.health.problems] == [Trouble.UNWATCHED]
        assert CHECK_SECONDS < due < CHECK_SECONDS + 1
    watcher.step(due)
    assert watcher.health.problems == ()


def test_directories_without_events_are_left_to_the_scan(layout: Layout, heard: Heard) -> None:
    (layout.agents / "far" / "sessions").mkdir(parents=True)
    watcher = heard.watcher(
        layout,
        scan_only=lambda path, _: "NFS" if "far" in path.parts else None,
    )
    try:
        watcher.step(0.0)
        assert (watcher.health.dirs, watcher.health.watched) == (4, 4)
        assert watcher.health.scan_only == 2
        assert watcher.health.problems == ()
    finally:
        watcher.close()


def test_it_looks_again_only_when_it_is_time_or_something_changed(
    watcher: Watcher, layout: Layout
) -> None:
    assert watcher.step(1.0) == CHECK_SECONDS
    assert watcher.health.at == 0.0
    gone = DirDeletedEvent(str(layout.agents))
    watcher._handle(gone)
    watcher._handle(gone)
    assert watcher.step(2.0) == 2.0 + CHECK_SECONDS
    # Directories appear in turn: the next look waits for the rest of them.
    watcher._handle(gone)
    due = watcher.step(2.1)
    assert 2.1 < due < 3.0
    assert watcher.health.at == 2.0
    watcher.step(due)
    assert watcher.health.at == due


def test_a_directory_that_may_not_be_read_is_said() -> None:
    user = as_ordinary_user()
    # Not pytest's directory: that is for its own user only, and any other pytest makes it so again.
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    closed = root / "agents" / "closed"
    (closed / "sessions").mkdir(parents=True)
    closed.chmod(0)
    program = """
import sys
from pathlib import Path
from bsd.core.layout import Layout
from tests.daemon.told import Heard
watcher = Heard().watcher(Layout(Path(sys.argv[1])))
watcher.step(0.0)
for problem in watcher.health.problems:
    print(problem.kind, problem)
watcher.close()
"""
    try:
        done = subprocess.run(
            [*user, sys.executable, "-c", program, str(root)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    finally:
        closed.chmod(0o700)
        shutil.rmtree(root)
    assert done.returncode == 0, done.stderr
    assert "no_access" in done.stdout
    assert str(closed) in done.stdout


def test_a_directory_of_archived_sessions_is_watched_once_it_is_there(
    tmp_path: Path, heard: Heard
) -> None:
    """The next look finds it; from then on its files belong to many agents."""
    home = tmp_path / "codex"
    (day := home / "sessions" / "2026" / "05" / "01").mkdir(parents=True)
    stem = "rollout-2026-05-01T10-11-12-01997e76-d124-7592-9cac-2ec05abbca08"
    source = SourceSettings(kind="codex", path=home / "sessions")
    watcher = heard.watcher(layout_of(tmp_path / "root", [source]))
    (path := day / f"{stem}.jsonl").write_bytes(b"{}\n")
    name, other = SessionName("codex:2026:05:01", stem), stem.replace("05-01", "04-30")
    try:
        watcher.step(0.0)
        before = watcher.health.watched
        (archived := home / "archived_sessions").mkdir()
        watcher.step(10 * CHECK_SECONDS)
        assert watcher.health.watched == before + 1
        heard.clear()
        path.rename(archived / path.name)
        heard.wait_for_hint(name)
        append(archived / f"{other}.jsonl")
        heard.wait_for_hint(SessionName("codex:2026:04:30", other))
        heard.clear()
        shutil.rmtree(archived)
        settle(watcher, heard, lambda: watcher.health.dirs == watcher.health.watched == before)
    finally:
        watcher.close()


def test_a_source_within_another_is_watched_as_both(tmp_path: Path, heard: Heard) -> None:
    outer = tmp_path / "projects"
    inner = outer / "one" / "projects"
    (inner / "two").mkdir(parents=True)
    sources = [
        SourceSettings(kind="claude-code", path=outer, name="outer"),
        SourceSettings(kind="claude-code", path=inner, name="inner"),
    ]
    watcher = heard.watcher(layout_of(tmp_path / "root", sources))
    session = "01997e76-d124-7592-9cac-2ec05abbca08"
    try:
        watcher.step(0.0)
        assert watcher.health.watched == watcher.health.dirs == 4
        append(inner / "two" / f"{session}.jsonl")
        heard.wait_for_hint(SessionName("inner:two", session))
        append(outer / "one" / f"{session}.jsonl")
        heard.wait_for_hint(SessionName("outer:one", session))
    finally:
        watcher.close()


def test_a_source_that_vanishes_and_comes_back_is_watched_again(
    tmp_path: Path, heard: Heard
) -> None:
    source = tmp_path / "projects"
    (source / "one").mkdir(parents=True)
    settings = SourceSettings(kind="claude-code", path=source)
    watcher = heard.watcher(layout_of(tmp_path / "root", [settings]))
    session = "01997e76-d124-7592-9cac-2ec05abbca08"
    try:
        watcher.step(0.0)
        heard.clear()
        shutil.rmtree(source)
        heard.wait_for(lambda: heard.attentions)
        settle(watcher, heard, lambda: watcher.health.dirs == 0)
        assert Trouble.SOURCE_MISSING in [each.kind for each in watcher.health.problems]
        (source / "one").mkdir(parents=True)
        settle(watcher, heard, lambda: watcher.health.watched == watcher.health.dirs == 2)
        append(source / "one" / f"{session}.jsonl")
        heard.wait_for_hint(SessionName("claude-code:one", session))
    finally:
        watcher.close()


def test_a_change_of_the_settings_is_noticed(layout: Layout, heard: Heard) -> None:
    layout.own.mkdir(exist_ok=True)
    changes: list[str] = []
    watcher = heard.watcher(layout, settings_changed=lambda: changes.append("changed"))
    try:
        watcher.step(0.0)
        (layout.own / "audit.jsonl").write_text("{}")
        draft = layout.own / "draft"
        draft.write_text("{}")
        draft.replace(layout.config_file)
        wait_for(lambda: changes, "the change to be noticed")
        assert set(changes) == {"changed"}
    finally:
        watcher.close()


def test_a_write_to_a_database_is_a_hint_for_the_sessions_that_it_changed(
    watcher: Watcher, heard: Heard, layout: Layout
) -> None:
    path = database_path(layout.root)
    with writing(path) as connection:
        for session in ("one", "two"):
            add_events(connection, session, conversation(session, "text"))
        connection.commit()
        watcher.rearm(0.0)
        heard.hints.clear()
        add_events(connection, "two", [b"{}"])
        connection.commit()

        def read() -> bool:
            watcher.step(CHECK_SECONDS / 2)
            return bool(heard.hints)

        wait_for(read, "a hint")
    assert set(heard.hints) == {SessionName("main", "two")}

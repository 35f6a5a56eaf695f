"""What one host forgets is in no file of the bucket and of the hosts that share it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bsd.actions.archive import forget
from bsd.actions.other_hosts import bring_back_remote, pass_on_forgetting, verify_remote
from bsd.actions.trash import delete_session
from bsd.core.errors import NotFound
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.fleet.push import push
from bsd.fleet.tombstones import put_tombstones
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.search import search
from bsd.store.tombstone import Tombstone
from bsd.transcripts.agents.programs import layout_of
from tests.fleet.archives import Machine, said_in
from tests.maintenance.keeping import DAY, ClaudeHome, extract, keep
from tests.maintenance.test_forgetting import WORDS, secret_session
from tests.openclaw_tree import set_idle
from tests.session_files import NAME, Clock

VALUES = ("tool_result", "assistant")


def shared(layout: Layout, tmp_path: Path, clock: Clock, host: str) -> Machine:
    machine = Machine.of(layout, tmp_path / "bucket", host)
    machine.clock = clock.now
    return machine


@pytest.fixture
def machines(layout: Layout, tmp_path: Path, clock: Clock) -> tuple[Machine, Machine]:
    """Two machines with one session; see `share_a_session`."""
    root = tmp_path / "second"
    (root / "agents").mkdir(parents=True)
    first = shared(layout, tmp_path, clock, "first")
    second = shared(Layout(root), tmp_path, clock, "second")
    share_a_session(first, second, clock)
    assert said_in(tmp_path / "bucket", WORDS[0])
    return first, second


def share_a_session(
    first: Machine,
    second: Machine,
    clock: Clock,
    made: Callable[[Layout], Path] = secret_session,
) -> Path:
    """Add a session to the store, archive, history and index of the first machine; the second
    brings it back, and extracts it again. Both have pushed; the transcript of the first is gone.

    Args:
        made: makes the session on the first machine.

    Returns:
        Where the transcript was.
    """
    path = made(first.layout)
    for each in (first, second):
        if each is second:
            bring_back_remote(second.context, "first", str(NAME))
            there = second.layout.transcript(NAME)
            set_idle(there, 2 * DAY)
        extract(each.layout, NAME, clock, trigger_types=VALUES)
        keep(each.layout, clock)
        search(each.layout, WORDS[0])
        clock.ahead += 2 * 3600  # the store rests
        push(each.context)
    path.unlink()
    clock.ahead += DAY
    return path


def test_an_entry_is_forgotten_everywhere(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    first, second = machines
    forget(first.context, str(NAME), entry="e1")
    assert said_in(first.layout.root, WORDS[0]) == []
    assert pass_on_forgetting(first.context) is None
    # The second machine is off, and obeys at its next push.
    assert said_in(second.layout.root, WORDS[0])
    pushed = push(second.context)
    assert (pushed.forgotten, pushed.problems) == (1, [])
    assert said_in(second.layout.root, WORDS[0]) == []
    assert said_in(tmp_path / "bucket", WORDS[0]) == []
    for each in (first, second):
        assert push(each.context).forgotten == 0
        assert said_in(each.layout.root, WORDS[1])
        assert verify_remote(each.context, full=True).clean
    assert said_in(tmp_path / "bucket", WORDS[0]) == []
    assert said_in(tmp_path / "bucket", WORDS[1])


def test_a_session_is_forgotten_everywhere(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    first, second = machines
    second.layout.transcript(NAME).unlink()
    forget(first.context, str(NAME))
    assert pass_on_forgetting(first.context) is None
    with pytest.raises(NotFound, match="forgotten for good"):
        bring_back_remote(second.context, "second", str(NAME))
    assert push(second.context).forgotten == 1
    for word in WORDS:
        assert said_in(tmp_path / "bucket", word) == []
        for each in (first, second):
            assert said_in(each.layout.root, word) == []


def test_a_bucket_that_is_away_only_delays_it(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    first, second = machines
    bucket, away = tmp_path / "bucket", tmp_path / "away"
    bucket.rename(away)
    forget(first.context, str(NAME), entry="e1")
    assert pass_on_forgetting(first.context) is not None
    assert said_in(first.layout.root, WORDS[0]) == []
    away.rename(bucket)
    push(first.context)
    push(second.context)
    assert said_in(bucket, WORDS[0]) == []
    assert said_in(second.layout.root, WORDS[0]) == []


def test_a_permanent_delete_reaches_the_others(
    machines: tuple[Machine, Machine], tmp_path: Path, clock: Clock
) -> None:
    first, second = machines
    second.layout.transcript(NAME).unlink()
    delete_session(first.context, NAME, permanent=True)
    push(first.context)
    push(second.context)
    for place in (first.layout.root, second.layout.root, tmp_path / "bucket"):
        assert said_in(place, WORDS[0]) == []


def test_another_session_of_that_name_stays(
    machines: tuple[Machine, Machine], tmp_path: Path, clock: Clock
) -> None:
    first, second = machines
    other = Tombstone.new(second.layout, NAME, clock.now(), origins=["0" * 16])
    entry = Tombstone.new(second.layout, NAME, clock.now(), entry="e1", origins=["1" * 16])
    put_tombstones(second.bucket, [other, entry], first.directory.key, clock.now())
    pushed = push(second.context)
    assert (pushed.forgotten, pushed.problems) == (0, [])
    assert said_in(second.layout.root, WORDS[0])


def test_what_was_stored_since_stays(machines: tuple[Machine, Machine], clock: Clock) -> None:
    first, second = machines
    origins = [each.name.removeprefix("session-") for each in _copies(first.layout)]
    long_ago = Tombstone.new(second.layout, NAME, clock.now() - 9 * DAY, origins=origins)
    put_tombstones(second.bucket, [long_ago], first.directory.key, clock.now())
    assert push(second.context).forgotten == 1  # the copy, which is taken again
    assert second.layout.store_dir(NAME).is_dir() or any(
        second.layout.archive_dir(NAME).glob("*.zst")
    )


def _copies(layout: Layout) -> list[Path]:
    return list(layout.archive_dir(NAME).glob("session-*"))


def test_an_unreadable_tombstone_is_a_problem_of_the_push(
    machines: tuple[Machine, Machine],
) -> None:
    _, second = machines
    second.bucket.put_new("tombstones/x.json", b"{}")
    assert "cannot be read" in push(second.context).problems[0]


def test_five_sessions_of_a_lost_host_come_back(tmp_path: Path, clock: Clock) -> None:
    home = ClaudeHome.of(tmp_path / "a", 5)
    lost = shared(home.layout, tmp_path, clock, "lost")
    for name in home.names:
        for each in (name, *home.subagents(name)):
            extract(home.layout, each, clock, trigger_types=VALUES)
    push(lost.context)  # values are still in the store
    for file in home.layout.extracted.glob("*/0*"):
        set_idle(file, 3 * DAY)
    RetentionRun(home.layout, actor="test").clean_store("24h", into_archive=True)
    push(lost.context)
    source = tmp_path / "b" / "home" / home.source.relative_to(tmp_path / "a" / "home")
    source.mkdir(parents=True)
    root = tmp_path / "b" / "root"
    root.mkdir()
    layout = layout_of(root, [SourceSettings(kind="claude-code", path=source)])
    here = shared(layout, tmp_path, clock, "here")
    shutil.rmtree(tmp_path / "a")
    for name in home.names:
        assert not bring_back_remote(here.context, "lost", str(name)).unavailable
    for path, (content, mtime_ns, _) in home.files.items():
        now = source / path.relative_to(home.source)
        assert (now.read_bytes(), now.stat().st_mtime_ns) == (content, mtime_ns)
    assert SessionName.parse(str(home.names[0])) == home.names[0]

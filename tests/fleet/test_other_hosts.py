"""A session in the archive of another host: listed, brought back, verified, forgotten."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.actions import other_hosts
from bsd.actions.other_hosts import (
    bring_back_remote,
    copy_back_remote,
    forget_remote,
    list_hosts_archive,
    verify_remote,
)
from bsd.core.errors import Conflict, Invalid, NotFound
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.fleet.host import HostDirectory
from bsd.fleet.hosts import find_hosts, named_hosts, shared_names, split_host
from bsd.fleet.remote_archive import sweep_arriving
from bsd.maintenance.deleted_sessions import deleted_sessions
from bsd.maintenance.retention import RetentionRun
from bsd.transcripts.agents.programs import layout_of
from tests.fleet.archives import Machine, said_in
from tests.maintenance.keeping import DAY, ClaudeHome, extract, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock

VALUES = ("tool_result", "assistant")


@pytest.fixture
def lost(tmp_path: Path, clock: Clock) -> tuple[Machine, ClaudeHome]:
    """A machine with five sessions in the bucket; values have left all of them."""
    home = ClaudeHome.of(tmp_path / "a", 5)
    machine = Machine.of(home.layout, tmp_path / "bucket", "laptop")
    for name in home.names:
        for each in (name, *home.subagents(name)):
            extract(home.layout, each, clock, trigger_types=VALUES)
    keep(home.layout, clock)
    for file in home.layout.extracted.glob("*/0*"):
        set_idle(file, 3 * DAY)
    RetentionRun(home.layout, actor="test").clean_store("24h", into_archive=True)
    machine.put_archive()
    return machine, home


def another(lost: ClaudeHome, tmp_path: Path, host: str = "desk") -> Machine:
    """A second machine with the same program, which has no sessions yet."""
    source = tmp_path / "b" / "home" / lost.source.relative_to(tmp_path / "a" / "home")
    source.mkdir(parents=True)
    root = tmp_path / "b" / "root"
    root.mkdir()
    layout = layout_of(root, [SourceSettings(kind="claude-code", path=source)])
    return Machine.of(layout, tmp_path / "bucket", host)


def test_a_lost_host_is_read_by_another_byte_for_byte(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path
) -> None:
    _, home = lost
    here = another(home, tmp_path)
    shutil.rmtree(tmp_path / "a")
    listed = list_hosts_archive(here.context, "*")
    assert [host.name for host in listed.hosts] == ["laptop"]
    assert {str(name) for name in home.names} <= {each.session for each in listed.sessions}
    assert any(each.title for each in listed.sessions)
    for name in home.names:
        back = bring_back_remote(here.context, "laptop", str(name))
        assert not back.unavailable
        assert len(back.sessions) == 4
    source = here.layout.sources[0].path
    for path, (content, mtime_ns, mode) in home.files.items():
        now = source / path.relative_to(home.source)
        assert now.read_bytes() == content
        assert (now.stat().st_mtime_ns, now.stat().st_mode & 0o777) == (mtime_ns, mode & 0o777)
    assert not list((here.layout.own / "arriving").iterdir())
    again = list_hosts_archive(here.context, "laptop", limit=1)
    assert again.sessions[0].is_here
    assert again.more == len(listed.sessions) - 1


def test_another_name_a_file_and_a_second_time(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path
) -> None:
    _, home = lost
    here, name = another(home, tmp_path), home.names[0]
    lines: list[bytes] = []
    written = copy_back_remote(here.context, "laptop", str(name), lines.append)
    original = next(home.source.rglob(f"{name.session}.jsonl"))
    whole = home.files[original][0]
    assert b"".join(lines) == whole
    assert not written.unavailable
    assert not here.layout.archive.exists() or not list(here.layout.archive.iterdir())
    bring_back_remote(here.context, "laptop", str(name))
    again = bring_back_remote(here.context, "laptop", str(name))
    assert again.path == str(here.layout.transcript(name))
    set_idle(here.layout.transcript(name))  # its program has written to it
    with pytest.raises(Conflict, match="there is a session"):
        bring_back_remote(here.context, "laptop", str(name))
    other = SessionName(name.agent, name.session.replace("a2ea", "ffff"))
    bring_back_remote(here.context, "laptop", str(name), renamed=str(other))
    assert here.layout.transcript(other).read_bytes() == whole
    with pytest.raises(NotFound, match="has no copy"):
        bring_back_remote(here.context, "laptop", "main/none")
    with pytest.raises(NotFound, match="no host"):
        bring_back_remote(here.context, "nowhere", str(name))


def test_an_agent_that_is_not_served_here_comes_back_as_a_file(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path
) -> None:
    _, home = lost
    root = tmp_path / "c"
    root.mkdir()
    here, name = Machine.of(Layout(root), tmp_path / "bucket", "server"), home.names[1]
    with pytest.raises(Invalid, match="no source of this root") as refused:
        bring_back_remote(here.context, "laptop", str(name))
    assert "--to FILE" in str(refused.value.hint)
    lines: list[bytes] = []
    copy_back_remote(here.context, "laptop", str(name), lines.append)
    original = next(home.source.rglob(f"{name.session}.jsonl"))
    assert b"".join(lines) == home.files[original][0]


def test_the_newer_copy_stays_and_another_version_is_a_conflict(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path, clock: Clock
) -> None:
    machine, home = lost
    here, name = another(home, tmp_path), home.names[0]
    bring_back_remote(here.context, "laptop", str(name))
    path = here.layout.transcript(name)
    grown = path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1].replace(
        b'"uuid": "', b'"uuid": "f'
    )
    path.write_bytes(grown)
    set_idle(path, DAY + 60)
    keep(here.layout, clock)
    path.unlink()
    back = bring_back_remote(here.context, "laptop", str(name))
    assert path.read_bytes() == grown
    assert "newer copy" in str(back.advice)
    # The other host has gone on in another way, later.
    there = home.layout.transcript(name)
    there.write_bytes(there.read_bytes() + grown.splitlines(keepends=True)[0])
    set_idle(there, 0)
    path.unlink()
    keep(home.layout, clock, scope=None)
    clock.ahead += 2 * DAY
    keep(home.layout, clock)
    machine.put_archive(generation=2)
    with pytest.raises(Conflict, match="in another way"):
        bring_back_remote(here.context, "laptop", str(name))


def test_a_killed_call_leaves_nothing_half(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, home = lost
    here, name = another(home, tmp_path), home.names[0]

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    for step in ("adopt", "bring_back_snapshot"):
        with monkeypatch.context() as patch:
            patch.setattr(other_hosts, step, killed)
            patch.setattr("bsd.fleet.remote_archive.remove_tree", lambda _: None)
            with pytest.raises(Killed):
                bring_back_remote(here.context, "laptop", str(name))
        assert not here.layout.transcript(name).exists()
    arriving = here.layout.own / "arriving"
    assert len(list(arriving.iterdir())) == 2
    sweep_arriving(here.layout)
    assert not list(arriving.iterdir())
    assert [copy.name for copy in deleted_sessions(here.layout)].count(name) == 1
    bring_back_remote(here.context, "laptop", str(name))
    assert here.layout.transcript(name).exists()


def test_verify_names_what_the_bucket_lacks(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path
) -> None:
    machine, _ = lost
    answer = verify_remote(machine.context, full=True)
    assert answer.clean
    [host] = answer.hosts
    assert host.read == host.bytes > 0
    objects = sorted((tmp_path / "bucket" / machine.directory.objects).iterdir())
    objects[0].unlink()
    content = objects[1].read_bytes()
    objects[1].write_bytes(content[:-1])
    objects[2].write_bytes(objects[2].read_bytes()[:-1] + b"\xff\xff"[:1])
    quick = verify_remote(machine.context, "*")
    assert not quick.clean
    assert len(quick.hosts[0].problems) == 2
    full = verify_remote(machine.context, "laptop", full=True)
    assert len(full.hosts[0].problems) == 3


def test_a_session_of_a_lost_host_is_forgotten(
    lost: tuple[Machine, ClaudeHome], tmp_path: Path
) -> None:
    _, home = lost
    here, name = another(home, tmp_path), home.names[2]
    bucket = tmp_path / "bucket"
    assert said_in(bucket, "w2ord")
    waits = forget_remote(here.context, "laptop", str(name))
    assert (waits.waits, waits.objects) == (True, 0)
    with pytest.raises(NotFound, match="forgotten for good"):
        bring_back_remote(here.context, "laptop", str(name))
    assert str(name) not in {
        each.session for each in list_hosts_archive(here.context, "*").sessions
    }
    gone = forget_remote(here.context, "laptop", str(name), lost=True)
    assert gone.objects > 1
    assert said_in(bucket, "w2ord") == []
    assert verify_remote(here.context, "laptop", full=True).clean
    assert not bring_back_remote(here.context, "laptop", str(home.names[1])).unavailable


def test_hosts_of_one_name_are_told_apart() -> None:
    one, two, three = (HostDirectory("a", f"{n}" * 8) for n in "123")
    other = HostDirectory("b", "4" * 8)
    hosts = named_hosts([one, two, three, other], two)
    assert [each.name for each in hosts] == ["a~11111111", "a", "a~33333333", "b"]
    assert [each.directory for each in find_hosts(hosts, "a")] == [two]
    assert [each.directory for each in find_hosts(hosts, "a~33333333")] == [three]
    assert [each.directory for each in find_hosts(hosts, "a~22222222")] == [two]
    assert len(find_hosts(hosts, "*")) == 4
    [warning] = shared_names(hosts)
    assert "3 machines are called a" in warning
    strangers = named_hosts([one, two, other], None)
    with pytest.raises(Invalid, match="2 hosts are called a"):
        find_hosts(strangers, "a")
    with pytest.raises(NotFound):
        find_hosts(strangers, "c")
    with pytest.raises(Invalid):
        find_hosts(strangers, "a~")


def test_names_before_a_colon(tmp_path: Path) -> None:
    home = ClaudeHome.of(tmp_path, 1, small=True)
    layout, name = home.layout, str(home.names[0])
    assert split_host(layout, name) is None
    assert split_host(layout, f"laptop:{name}") == ("laptop", name)
    assert split_host(layout, f"claude-code~0123abcd:{name}") == ("claude-code~0123abcd", name)
    assert split_host(layout, "main/4f2a") is None
    assert split_host(layout, "main/4f:2a") is None
    (layout.archive / "codex:2025:09:24_x").mkdir(parents=True)
    assert split_host(layout, "codex:2025:09:24/x") is None
    (layout.agents / "team:one").mkdir(parents=True)
    assert split_host(layout, "team:one/x") is None
    assert split_host(replace(layout, sources=()), name) == ("claude-code", name.partition(":")[2])

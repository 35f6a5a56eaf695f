"""Pipes, links, devices, directories, huge and invalid files wherever another program can put
one.

No command waits for them, no reader follows them, and everything else goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from bsd.maintenance.verify import verify
from bsd.transcripts.agents.openclaw.registry import running as running_by
from bsd.transcripts.change import Identity
from tests import forked
from tests.daemon.running import configure, running
from tests.needs import NOBODY
from tests.openclaw_tree import add_session
from tests.session_files import sample
from tests.waiting import wait_for

MEMORY = 3 << 30  # bytes of address space: too few for a file of a terabyte
CONTENT = sample(4, 1)
GOOD = "main/good"
SECRET = '{"secret": "not for you"}\n' * 3
PLACED = "[[extracted-"

# Places, relative to the root, where an agent's program or a broken disk may leave any file.
PLACES = (
    ".brainsurgeon/bsd.lock",
    ".brainsurgeon/edits/x",
    ".brainsurgeon/history/main_bad/000001_extract.jsonl",
    ".brainsurgeon/history/main_good/000001_extract.jsonl",
    ".brainsurgeon/inflight/0123456789abcdef.file",
    ".brainsurgeon/inflight/0123456789abcdef.probe",
    ".brainsurgeon/inflight/fedcba9876543210.record",
    ".brainsurgeon/moving/main_bad_20260101T000000.000Z.trash.json",
    ".brainsurgeon/orphans/x.json",
    ".brainsurgeon/search.db",
    ".brainsurgeon/state.db",
    "agents/bad/agent/openclaw-agent.sqlite",
    "agents/bad/sessions/.brainsurgeon-probe",
    "agents/bad/sessions/b.jsonl.lock",
    "agents/odd/sessions/c.jsonl",
    "agents/odd/sessions/c.jsonl.reset.2026-01-01T00-00-00.000Z",
    "agents/bad/sessions/sessions.json",
    "agents/worse/agent",
    "agents/worst/sessions",
    "extracted/bad_b/0001_user.json",
    "extracted/bad_b/index.json",
    "extracted/main_good/0001_user.json",
    "memory/facts.db",
    "trash/main_gone_20260101T000000.000Z.meta.json",
)
COMMANDS = (
    ("status",),
    ("sessions",),
    ("extract",),
    ("trash", "list"),
    ("verify",),
    ("doctor",),
    ("restore-all", "--yes"),
)


def _link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link_outside(path: Path) -> None:
    secret = path.parent / "secret"  # no answer contains its content
    secret.write_text(SECRET)
    outside = Path(os.environ["PLANTED_OUTSIDE"]) / f"{abs(hash(path))}"
    secret.rename(outside)
    path.symlink_to(outside)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _deep(path: Path) -> None:
    path.write_bytes(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n")


def _garbage(path: Path) -> None:
    path.write_bytes(b'["\xff\x00", {"format": [], "record": {}}, 1e999]\n{}\n' * 10)


def _odd_json(path: Path) -> None:
    record = {"record": 1, "session": "a/b", "path": "a\0b", "created_ns": 1e99}
    journal = {"items": "x", "at": {}, "aim": "trash"}
    path.write_text(json.dumps({**record, **journal, "format": 1, "entries": {}, "version": 1}))


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "zero": _link_to_zero,
    "outside": _link_outside,
    "directory": Path.mkdir,
    "sparse": _sparse,
    "deep": _deep,
    "garbage": _garbage,
    "odd": _odd_json,
}


@pytest.fixture
def root(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a valid session."""
    (tmp_path / "outside").mkdir()
    monkeypatch.setenv("PLANTED_OUTSIDE", str(tmp_path / "outside"))
    add_session(root, GOOD, CONTENT)
    return root


def plant(root: Path, kind: str) -> Path:
    """Put one kind of thing into all places."""
    for place in PLACES:
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        KINDS[kind](path)
        os.utime(path, (1e9, 1e9), follow_symlinks=False)
    return root


@pytest.fixture(params=KINDS)
def planted(request: pytest.FixtureRequest, root: Path) -> Path:
    return plant(root, request.param)


def bsd(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in little memory; it must end by itself, and without an internal error."""
    done = forked.run("--root", str(root), *arguments, memory=MEMORY)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, (arguments, said)
    assert "internal error" not in said.lower(), (arguments, said)
    assert "not for you" not in said, (arguments, said)
    return done


def good(root: Path) -> Path:
    return Layout(root).agents / "main/sessions/good.jsonl"


def test_every_command_goes_on(planted: Path) -> None:
    configure(planted, retention="never")
    for command in COMMANDS:
        done = bsd(planted, *command)
        assert done.returncode in {0, 1, 3}, (command, done.stdout, done.stderr)
        if command == ("extract",):
            assert PLACED in good(planted).read_text(), (done.stdout, done.stderr)
    assert PLACED not in good(planted).read_text()


@pytest.mark.parametrize("kind", ["pipe", "zero", "directory", "deep", "garbage", "odd"])
def test_what_cannot_be_used_is_named(root: Path, kind: str) -> None:
    found = [each.where for each in verify(Layout(plant(root, kind))).findings]
    for place in PLACES:
        if "orphans" in place or "moving" in place or place.endswith(".record"):
            assert str(root / place) in found


@pytest.mark.daemon
@pytest.mark.parametrize("kind", ["pipe", "garbage", "deep"])
def test_the_daemon_goes_on(root: Path, tmp_path: Path, kind: str) -> None:
    configure(plant(root, kind))
    # with another file there, bsd cannot tell whether it runs alone
    Layout(root).instance_lock.unlink()
    with running(root, tmp_path) as daemon:
        wait_for(lambda: PLACED in good(root).read_text(), "the good session to be extracted")
        assert daemon.status()["state"] == "running"
        assert daemon.ask("sessions")


@pytest.mark.parametrize("kind", ["pipe", "zero", "directory"])
def test_a_daemon_that_cannot_be_alone_says_so(root: Path, kind: str) -> None:
    (root / ".brainsurgeon").mkdir(mode=0o700)
    KINDS[kind](Layout(root).instance_lock)
    done = bsd(root, "run")
    assert done.returncode in {1, 69, 77}, (done.stdout, done.stderr)
    assert "bsd.lock" in done.stderr
    assert "Try: " in done.stderr


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"odd"}))
def test_settings_that_are_none_are_named(root: Path, kind: str) -> None:
    own = root / ".brainsurgeon"
    own.mkdir(mode=0o700)
    KINDS[kind](own / "config.json")
    done = bsd(root, "extract")
    assert done.returncode == 78, (done.stdout, done.stderr)
    assert "config.json" in done.stderr
    assert "Try: " in done.stderr
    assert PLACED not in good(root).read_text()


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"outside"}))
def test_a_settings_file_that_is_none_is_named(root: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "bsd.toml"
    KINDS[kind](file)
    done = bsd(root, "--config", str(file), "extract")
    assert done.returncode == 78, (done.stdout, done.stderr)
    assert "bsd.toml" in done.stderr


_LOG, _AUDIT = "logs/brainsurgeon.log", ".brainsurgeon/audit.jsonl"


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("outside", _LOG), ("outside", _AUDIT), ("outside", "logs")),
        *(("pipe", _LOG), ("pipe", _AUDIT), ("directory", _AUDIT), ("sparse", _AUDIT)),
        *(("zero", "logs"), ("sparse", _LOG)),
    ],
)
def test_a_log_that_is_none_stops_nothing(
    root: Path, tmp_path: Path, kind: str, place: str
) -> None:
    path = root / place
    path.parent.mkdir(exist_ok=True, mode=0o700)
    KINDS[kind](path)
    done = bsd(root, "extract")
    assert done.returncode in {0, 1}, (done.stdout, done.stderr)
    assert PLACED in good(root).read_text()
    told = {one.read_text() for one in (tmp_path / "outside").iterdir()}
    assert told <= {SECRET}, "nothing has been written there"
    for command in (("logs",), ("status",), ("doctor",)):
        assert bsd(root, *command).returncode in {0, 1, 3, 69, 77}


def test_logs_that_lead_out_of_the_root_are_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "logs").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "brainsurgeon.log").write_text(SECRET)
    assert bsd(root, "extract").returncode == 0
    assert (tmp_path / "outside" / "brainsurgeon.log").read_text() == SECRET
    done = bsd(root, "logs")
    assert done.returncode == 77, (done.stdout, done.stderr)


def test_an_agent_whose_list_cannot_be_read_is_in_use(root: Path) -> None:
    for name, kind in KINDS.items():
        if name == "odd":
            continue  # a map, of no sessions
        listed = good(root).with_name("sessions.json")
        kind(listed)
        assert "cannot tell" in (running_by(listed.parent.parent, "good") or ""), kind
        if listed.is_dir() and not listed.is_symlink():
            listed.rmdir()
        else:
            listed.unlink()


# As root, beside an agent that runs as another user and owns all of its directory.


def _mark(path: Path, **other: int) -> dict[str, object]:
    found = Identity.of(path.stat())
    identity = asdict(found) | other
    return {"identity": identity, "header": "", "tail": ""}


@pytest.fixture
def beside_another(root: Path) -> Path:
    """A record of an agent that would put its file at the path of another agent's session."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be beside somebody else")
    own = root / "agents" / "evil" / ".brainsurgeon" / "inflight"
    own.mkdir(parents=True, mode=0o700)
    own.parent.chmod(0o700)
    (root / "agents" / "evil" / "sessions").mkdir()
    path = good(root)
    intent = {"record": 1, "session": GOOD, "path": str(path), "created_ns": 10**18}
    ready = {"ready": True, "strong": True, "old": _mark(path, ino=1), "new": _mark(path)}
    (own / "0123.record").write_text(f"{json.dumps(intent)}\n{json.dumps(ready)}\n")
    (own / "0123.file").write_text(SECRET)
    for file in own.iterdir():
        file.chmod(0o600)
        os.utime(file, (1e9, 1e9))
    for each in (root / "agents" / "evil", *(root / "agents" / "evil").rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    return own


def test_an_agent_of_another_user_gets_at_no_session_but_its_own(
    root: Path, beside_another: Path
) -> None:
    configure(root)
    before = {file.name: file.read_bytes() for file in beside_another.iterdir()}
    for command in COMMANDS:
        done = bsd(root, *command)
        said = done.stdout + done.stderr
        assert "secret" not in good(root).read_text(), (command, said)
        if command[0] in {"verify", "doctor"}:
            assert f"{beside_another} " in said.replace("\n", " "), (command, said)
            assert "uid 65534" in said
        if command == ("extract",):
            assert PLACED in good(root).read_text(), said
    assert {file.name: file.read_bytes() for file in beside_another.iterdir()} == before
    assert bsd(root, "delete", GOOD, "--yes").returncode == 0, "nobody else keeps it here"


@pytest.mark.daemon
def test_a_daemon_of_root_beside_an_agent_of_another_user(
    root: Path, beside_another: Path, tmp_path: Path
) -> None:
    configure(root)
    with running(root, tmp_path) as daemon:
        wait_for(lambda: PLACED in good(root).read_text(), "the good session to be extracted")
        assert "secret" not in good(root).read_text()
        assert daemon.status()["state"] == "running"
    assert len(list(beside_another.iterdir())) == 2

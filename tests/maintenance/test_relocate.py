"""Names are given back without replacing a file; no file moves from one mount to another."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bsd.maintenance.relocate import link_back
from tests.maintenance.test_trash_of_earlier_versions import ID, meta
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"one\n")
    return path


def test_a_name_that_is_taken_again_is_not_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"another\n")
    with pytest.raises(FileExistsError):
        link_back(source, target, tmp_path / "temporary")
    assert (source.read_bytes(), target.read_bytes()) == (b"one\n", b"another\n")


def test_where_there_are_no_links_it_is_renamed_unless_the_name_is_taken(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "target"
    link_back(source, target, tmp_path / "temporary")
    assert target.read_bytes() == b"one\n"
    source.write_bytes(b"two\n")
    with pytest.raises(FileExistsError):
        link_back(source, target, tmp_path / "temporary")
    assert target.read_bytes() == b"one\n"


# --- sessions on a mount of their own ---


_SCRIPT = """
import os, sys, time
from pathlib import Path
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.trash import Trash
from bsd.sessions.idle import RetryBudget
layout, name = Layout(Path(sys.argv[1])), SessionName("main", "s1")
path = layout.session_file(name)
before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode
trash = Trash(layout, "14d", budget=RetryBudget(wait=0.0))
try:
    trash.delete(name)
except LeftAlone as refused:
    assert "another file system than the trash" in refused.message
    assert "--permanent" in refused.hint
else:
    raise AssertionError("it was moved")
assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) == before
assert trash.items() == [] and not list(layout.moving.glob("*"))
(layout.trash / f"{sys.argv[2]}.jsonl").write_bytes(before[0])  # an earlier version has copied it
path.unlink()
(layout.trash / f"{sys.argv[2]}.meta.json").write_text(sys.argv[3])
(layout.trash / f"{sys.argv[2]}.meta.json").chmod(0o600)
trash.restore(sys.argv[2])
assert path.read_bytes() == before[0]
assert [p.name for p in path.parent.iterdir()] == ["s1.jsonl"]
os.utime(path, (1_700_000_000, 1_700_000_000))
trash.delete(name, permanent=True)
assert not list(path.parent.iterdir())
print("refused")
"""


def test_a_bind_mount_of_the_sessions(tmp_path: Path) -> None:
    sessions = tmp_path / "root/agents/main/sessions"
    elsewhere = tmp_path / "elsewhere"
    for directory in (sessions, elsewhere):
        directory.mkdir(parents=True)
    (elsewhere / "s1.jsonl").write_bytes(b'{"type":"session","version":3}\n' * 50_000)
    os.utime(elsewhere / "s1.jsonl", (1_700_000_000, 1_700_000_000))
    steps = f'mount --bind "{elsewhere}" "{sessions}" && exec "$@"'
    here = Path(__file__).parents[2]
    program = [
        sys.executable,
        "-c",
        _SCRIPT,
        str(tmp_path / "root"),
        ID,
        meta(sessions / "s1.jsonl", sessions_json=None),
    ]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", steps, "sh", *program],
        cwd=here,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    if "unshare" in done.stderr or "mount" in done.stderr.split(":")[0]:
        pytest.skip(f"no mounts of our own here: {done.stderr.strip()}")
    assert done.stdout == "refused\n", done.stderr

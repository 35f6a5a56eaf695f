"""Sessions on a mount of their own: what cannot be renamed is copied, whole and durable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import sys, time
from pathlib import Path
from bsd.foundation.layout import Layout, SessionName
from bsd.care.trash import Trash
from bsd.session.rest import Patience
layout, name = Layout(Path(sys.argv[1])), SessionName("main", "s1")
path = layout.session_file(name)
before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode
Trash(layout, "14d", patience=Patience(wait=0.0)).delete(name)
assert not path.exists()
(item,) = Trash(layout, "14d").items()
assert (layout.trash / f"{item.id}.jsonl").read_bytes() == before[0]
Trash(layout, "14d", patience=Patience(wait=0.0)).restore(item.id)
assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) == before
assert sorted(p.name for p in path.parent.iterdir()) == ["s1.jsonl"]
print("there and back")
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
    program = [sys.executable, "-c", _SCRIPT, str(tmp_path / "root")]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", steps, "sh", *program],
        cwd=here,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare" in done.stderr or "mount" in done.stderr.split(":")[0]:
        pytest.skip(f"no mounts of our own here: {done.stderr.strip()}")
    assert done.stdout == "there and back\n", done.stderr

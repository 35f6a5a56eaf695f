"""A dry run and a run agree exactly, over whatever can lie in a workspace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import as_ordinary_user

_TOP = Path(__file__).parents[2]
_TREES = int(os.environ.get("BSD_WORKSPACE_TREES", "60"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that an ordinary user may write to."""
    with tempfile.TemporaryDirectory(prefix="bsd-agreement-", ignore_cleanup_errors=True) as top:
        os.chmod(top, 0o777)
        yield Path(top)


def test_a_dry_run_and_a_run_agree_exactly(place: Path) -> None:
    answer = subprocess.run(
        [
            *as_ordinary_user(),
            *[sys.executable, "-m", "tests.workspaces.agreement"],
            *[str(place), "7", str(_TREES)],
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=_TOP,
        timeout=100,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    told = json.loads(answer.stdout)
    assert told["problems"] == [], "\n".join(told["problems"][:10])
    # each of these has really been had
    assert all(told["seen"][one] for one in ("deleted_sessions", "errors", "skipped_sessions"))

"""pi's own SessionManager opens the files that bsd wrote and sees the same session."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.planning.result import Status
from bsd.sample import session_lines
from tests import forked
from tests.actions.performed import Caller
from tests.compat.pi import Seen, assert_same_session, assert_sendable, read
from tests.session_files import sample
from tests.transcripts.agents.sources import PI
from tests.transcripts.agents.sources.tree import Home, away

pytestmark = pytest.mark.compat


def _sessions(root: Path) -> list[Path]:
    return sorted(root.glob("agents/*/sessions/*.jsonl"))


def _bsd(root: Path, *arguments: str) -> Any:
    done = forked.run("--root", str(root), "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_sees_every_line_of_sessions_at_rest(node: str, openclaw_root: Path) -> None:
    for path, seen in zip(
        _sessions(openclaw_root), read(node, _sessions(openclaw_root)), strict=True
    ):
        assert seen.lost == 0, path
        assert not seen.rewritten, path
        assert seen.context, path


def test_a_generated_session_is_one_a_provider_would_take(node: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(sample(60))
    [seen] = read(node, [path])
    assert_sendable(seen)
    assert seen.unanswered() == []
    assert seen.unasked() == []


@pytest.mark.parametrize("types", ["default", "all"])
def test_extracted_and_restored_sessions_are_the_same_to_pi(
    node: str, openclaw_root: Path, types: str
) -> None:
    paths = _sessions(openclaw_root)
    if types == "all":
        every = ["thinking", "tool_call", "tool_result", "assistant", "user", "system"]
        _bsd(openclaw_root, "config", "set", "trigger_types", json.dumps(every))
    before, sizes = read(node, paths), [path.stat().st_size for path in paths]

    _bsd(openclaw_root, "extract")
    assert sum(path.stat().st_size for path in paths) < 0.8 * sum(sizes)
    _compare(before, read(node, paths))

    _as_if_long_ago(paths)
    _bsd(openclaw_root, "restore-all", "--yes")
    restored = read(node, paths)
    _compare(before, restored)
    assert [seen.context for seen in restored] == [seen.context for seen in before]
    assert all(b"_extracted" not in path.read_bytes() for path in paths)


def _compare(before: list[Seen], after: list[Seen]) -> None:
    for one, other in zip(before, after, strict=True):
        assert_same_session(one, other)
        assert_sendable(other)


def _as_if_long_ago(paths: list[Path]) -> None:
    """Let the quiet time after an edit pass."""
    for path in paths:
        then = path.stat().st_mtime - 3600
        os.utime(path, (then, then))


Entry = dict[str, Any]


def _broken_json(lines: list[bytes]) -> list[bytes]:
    return [*lines[:8], lines[8][:-10] + b"\n", *lines[9:]]


def _edited(change: Callable[[Entry], None]) -> Callable[[list[bytes]], list[bytes]]:
    """Apply `change` to the last tool result of a session."""

    def tamper(lines: list[bytes]) -> list[bytes]:
        number = max(n for n, line in enumerate(lines) if b'"role":"toolResult"' in line)
        entry = json.loads(lines[number])
        change(entry)
        edited = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        return [*lines[:number], edited, *lines[number + 1 :]]

    return tamper


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(_broken_json, id="broken line"),
        pytest.param(lambda lines: lines[:-1], id="missing line"),
        pytest.param(_edited(lambda e: e.update(id="00000000")), id="other id"),
        pytest.param(_edited(lambda e: e.update(parentId=None)), id="other parent"),
        pytest.param(_edited(lambda e: e["message"].update(toolCallId="x")), id="other call"),
        pytest.param(_edited(lambda e: e["message"].update(content=[])), id="no block"),
        pytest.param(_edited(lambda e: e["message"].update(role="user")), id="other role"),
    ],
)
def test_the_comparison_notices(
    node: str, tmp_path: Path, tamper: Callable[[list[bytes]], list[bytes]]
) -> None:
    lines = list(session_lines(turns=6))
    original, damaged = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    original.write_bytes(b"".join(lines))
    damaged.write_bytes(b"".join(tamper(lines)))
    before, after = read(node, [original, damaged])
    with pytest.raises(AssertionError):
        assert_same_session(before, after)


# --- pi's own SessionManager opens a session in its own directory after bsd's changes ---


def test_a_session_of_pis_own_directory_is_the_same_to_pi(node: str, tmp_path: Path) -> None:
    home = Home.of(PI, tmp_path, PI.lines())
    old = home.path.read_bytes()
    [before] = read(node, [home.path])
    caller = Caller(layout=home.layout, config=ConfigService(home.layout.config_file))
    assert caller.extract(home.name, overrides={"keep_recent": 0}).status is Status.EXTRACTED
    assert away(old, home.path.read_bytes()) > 0
    [after] = read(node, [home.path])
    assert_same_session(before, after)
    assert_sendable(after)
    assert (after.lost, after.rewritten) == (0, False)

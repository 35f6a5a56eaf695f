"""`bsd archive keep`: copies of whole sessions, without a daemon."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from tests import forked
from tests.cli.conftest import Call, Program, snapshot
from tests.cli.test_sources_command import with_sources
from tests.commands import Ended
from tests.maintenance.keeping import DAY, ClaudeHome
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home
from tests.waiting import DEADLINE_SECONDS

ALL = {"main/alpha", "main/beta", "main/foreign", "other_agent/gamma"}


def copied(document: dict[str, Any]) -> dict[str, str]:
    return {one["session"]: one["status"] for one in document["sessions"]}


def test_all_sessions_are_copied_at_once_and_only_once(bsd: Call, root: Path) -> None:
    done = bsd("archive", "keep", "--json")
    assert done.code == 0
    assert copied(done.document) == dict.fromkeys(ALL, "copied")
    assert done.document["copied"] == 4
    sizes = {one["session"]: one["size"] for one in done.document["sessions"]}
    assert done.document["bytes_read"] == sum(sizes.values())
    again = bsd("archive", "keep", "--json")
    assert again.code == 0
    assert copied(again.document) == dict.fromkeys(ALL, "unchanged")
    assert bsd("archive", "keep").out.startswith("0 sessions copied")
    files = {path: path.read_bytes() for path in root.glob("agents/*/sessions/*.jsonl")}
    for path in files:
        path.unlink()
    for name in ALL:
        assert bsd("archive", "bring-back", name).code == 0
    assert {path: path.read_bytes() for path in files} == files


def test_only_those_that_are_named(bsd: Call) -> None:
    done = bsd("archive", "keep", "main/beta", "main/beta", "--json")
    assert (done.code, copied(done.document)) == (0, {"main/beta": "copied"})
    shown = bsd("archive", "keep", "main/beta", "main/alpha")
    assert shown.code == 0
    assert "main/alpha  copied" in shown.out
    assert "main/beta   unchanged" in shown.out


def test_a_dry_run_changes_nothing(bsd: Call, root: Path) -> None:
    bsd("archive", "keep", "main/beta")
    before = snapshot(root)
    done = bsd("archive", "keep", "--dry-run", "--json")
    assert done.code == 0
    assert copied(done.document) == dict.fromkeys(ALL, "copied") | {"main/beta": "unchanged"}
    assert done.document["dry_run"] is True
    assert "3 sessions would be copied, 1 copied before" in bsd("archive", "keep", "--dry-run").out
    assert snapshot(root) == before


def test_one_that_is_not_there_is_an_error_and_the_others_are_copied(bsd: Call) -> None:
    done = bsd("archive", "keep", "main/alpha", "main/nope", "--json")
    assert done.code == 1
    assert copied(done.document) == {"main/alpha": "copied", "main/nope": "failed"}
    assert "main/nope" in done.err
    assert bsd("archive", "keep", "../alpha").code == 2


def test_one_that_cannot_be_copied_does_not_stop_the_others(bsd: Call, root: Path) -> None:
    archive = root / "archive"
    archive.mkdir(mode=0o700)
    (archive / "main_alpha").write_text("no directory")
    done = bsd("archive", "keep", "--json")
    assert done.code not in {0, 4}
    assert copied(done.document) == dict.fromkeys(ALL, "copied") | {"main/alpha": "failed"}
    assert "main/alpha" in done.err
    assert "Traceback" not in done.err
    assert (archive / "main_alpha").read_text() == "no directory"


def test_one_in_use_is_left_for_later(bsd: Call, root: Path) -> None:
    path = root / "agents/main/sessions/alpha.jsonl"
    lock = path.with_name("alpha.jsonl.lock")
    lock.write_text(json.dumps({"pid": os.getpid(), "createdAt": "2026-01-01T00:00:00.000Z"}))
    done = bsd("archive", "keep", "--json")
    assert done.code == 4
    assert copied(done.document) == dict.fromkeys(ALL, "copied") | {"main/alpha": "busy"}
    assert "main/alpha" in done.err
    lock.unlink()
    assert bsd("archive", "keep").code == 0


def test_another_bsd_at_work_on_it_is_waited_for(program: Program, root: Path) -> None:
    with own_lock(Layout(root), SessionName("main", "alpha"), 0.0):
        process = program.start("archive", "keep", "main/alpha", "--json")
        other = program("archive", "keep", "main/beta", "--json")
        assert other.code == 0
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    assert copied(json.loads(out)) == {"main/alpha": "copied"}


def test_where_no_copies_are_kept_it_says_so(bsd: Call, root: Path) -> None:
    bsd("config", "set", "archive_sessions", "off")
    done = bsd("archive", "keep")
    assert done.code == 1
    assert "archive_sessions is off" in done.err
    assert "Try: `bsd config set archive_sessions 180d`" in done.err
    assert not (root / "archive").exists()


def test_where_bsd_only_reads_it_copies_nothing(bsd: Call, root: Path) -> None:
    assert bsd("archive", "keep", BRAINSURGEON_READONLY="true").code == 77
    assert not (root / "archive").exists()


# --- sessions of another program, whose settings say when it deletes them ---


def of_claude(home: Home | ClaudeHome, *arguments: str) -> dict[str, Any]:
    root = home.layout.root
    config = root / "bsd.toml"
    config.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{home.source}"\n')
    done = forked.run("--root", str(root), "--config", str(config), *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_those_that_are_deleted_soonest_come_first(tmp_path: Path) -> None:
    home = ClaudeHome.of(tmp_path, 5, small=True)
    for number, name in enumerate(home.names):  # not by their names, nor by those of files
        set_idle(home.layout.session_file(name), (2 + number * 7 % 5) * DAY)
    done = of_claude(home, "archive", "keep")
    heads = [name for name in copied(done) if name in set(map(str, home.names))]
    oldest_first = sorted(
        home.names, key=lambda name: home.layout.session_file(name).stat().st_mtime
    )
    assert heads == [str(name) for name in oldest_first]


def test_with_a_session_go_its_parts(tmp_path: Path) -> None:
    home = ClaudeHome.of(tmp_path, 2)
    name = home.names[0]
    done = of_claude(home, "archive", "keep", str(name))
    assert set(copied(done)) == {str(name), *map(str, home.subagents(name))}
    before = home.now()
    for path in [each for each in before if name.session in str(each)]:
        path.unlink()
    of_claude(home, "archive", "bring-back", str(name))
    assert home.now() == before


@pytest.mark.parametrize("minutes", [1, 30])
def test_none_waits_for_a_day_of_rest(tmp_path: Path, minutes: int) -> None:
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    set_idle(home.path, 60.0 * minutes + 5)
    assert of_claude(home, "archive", "keep")["copied"] == 1


def test_a_note_with_a_line_break_in_its_name_is_told_on_one_line(
    bsd: Call, tmp_path: Path
) -> None:
    claude = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines())
    note = claude.path.parent / "memory" / "a\nb.md"
    note.parent.mkdir()
    note.write_text("remember")

    def call(*arguments: str) -> Ended:
        return with_sources(bsd, tmp_path, *arguments, kind="claude-code", claude=claude.source)

    name = f"claude:{claude.path.parent.name}/{claude.path.stem}"
    assert call("archive", "keep").code == 0
    claude.path.unlink()
    note.unlink()
    assert call("archive", "keep").code == 0
    done = call("archive", "bring-back", name)
    assert (done.code, note.read_text()) == (0, "remember")
    assert f"also back, from the project's memory: {note.parent}/a\\x0ab.md\n" in done.out

"""`bsd exclude`: an excluded session is not listed, found, opened or changed; its values come
back.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsd.core import exclude
from bsd.core.config import PruningConfig
from bsd.core.layout import Layout
from bsd.maintenance.retention import RetentionRun
from bsd.transcripts import reader
from tests.cli.conftest import Call, rest
from tests.cli.test_sources_command import with_sources
from tests.openclaw_tree import add_session, grow_old
from tests.session_files import sample


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Transcripts that were opened."""
    paths: list[Path] = []
    before = reader.TranscriptFile.__init__

    def counting(self: Any, path: Path, **more: Any) -> None:
        paths.append(path)
        before(self, path, **more)

    monkeypatch.setattr(reader.TranscriptFile, "__init__", counting)
    return paths


def listed(bsd: Call, *arguments: str) -> set[str]:
    return {one["session"] for one in bsd("sessions", "--json", *arguments).document["sessions"]}


def test_it_lists_adds_and_removes(bsd: Call) -> None:
    assert bsd("exclude").out == "nothing is excluded\n"
    ended = bsd("exclude", "main/al*", "other_agent")
    assert ended.code == 0
    assert (
        "Data that bsd already has stays: `bsd archive forget AGENT/SESSION` deletes it"
        in ended.err
    )
    assert listed(bsd) == {"main/beta", "main/foreign"}
    ended = bsd("exclude", "--json")
    assert ended.document == {
        "exclude": [
            {"pattern": "main/al*", "fixed": False, "agents": 0, "sessions": 1},
            {"pattern": "other_agent", "fixed": False, "agents": 1, "sessions": 1},
        ]
    }
    assert "2 patterns of excluded sessions: `bsd exclude`" in bsd("sessions").err
    assert bsd("config", "get", "exclude").out == '["main/al*", "other_agent"]\n'
    assert bsd("exclude", "--remove", "main/al*").code == 0
    assert "main/alpha" in listed(bsd)
    ended = bsd("exclude", "--remove", "main/al*")
    assert (ended.code, "'main/al*' is not excluded" in ended.err) == (1, True)
    assert bsd("exclude", "--remove").code == 2


def test_a_pattern_that_names_nothing_is_refused_or_told(bsd: Call) -> None:
    ended = bsd("exclude", "a b")
    assert (ended.code, "is not an AGENT, AGENT/SESSION" in ended.err) == (2, True)
    ended = bsd("exclude", "nothing")
    assert ended.code == 0
    assert "nothing matches no agent or session at present" in ended.err


def test_a_directory_may_be_relative_and_programs_without_projects_are_named(
    bsd: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project := tmp_path / "work" / "shop").mkdir(parents=True)
    monkeypatch.chdir(project)
    claude, codex = tmp_path / "projects", tmp_path / "sessions"
    written = str(project).replace("/", "-").replace("_", "-").replace(".", "-")
    session = claude / written / "11111111-2222-4333-8444-555555555555.jsonl"
    session.parent.mkdir(parents=True)
    session.write_bytes(b"{}\n")
    ended = with_sources(bsd, tmp_path, "exclude", ".", kind="claude-code", claude=claude)
    assert ended.code == 0
    assert "1 agent, 1 session" in ended.out
    assert str(project) in ended.out
    assert "the agents of OpenClaw do not keep sessions by project" in ended.err
    codex.mkdir()
    ended = with_sources(bsd, tmp_path, "exclude", "~/x", kind="codex", codex=codex)
    assert "codex and the agents of OpenClaw do not keep" in ended.err


def test_a_session_that_is_named_is_refused_with_its_pattern_and_never_opened(
    bsd: Call, opened: list[Path]
) -> None:
    bsd("exclude", "main/al*")
    opened.clear()
    lines = (
        ("show", "main/alpha"),
        ("show", "alph"),
        ("summary", "main/alpha"),
        ("context", "main/alpha"),
        ("extract", "main/alpha"),
        ("extract", "main/alpha", "--dry-run"),
        ("undo", "main/alpha"),
        ("delete", "main/alpha", "--yes"),
        ("set-extractable", "main/alpha", "x", "false"),
        ("replace", "main/alpha", "--start", "a", "--end", "b", "--replacement", ""),
        ("pause", "main/alpha"),
        ("purge_control", "get_context", "--session", "main/alpha"),
    )
    for line in lines:
        ended = bsd(*line)
        assert ended.code != 0, line
        assert "excluded by 'main/al*': bsd ignores it" in ended.err, line
        assert "Try: `bsd exclude --remove 'main/al*'`" in ended.err, line
    bsd("exclude", "main")
    ended = bsd("sessions", "--agent", "main")
    assert "main is excluded by 'main'" in ended.err
    for words in ("sessions", "search the", "verify", "doctor", "archive keep", "extract"):
        bsd(*words.split())
    assert {path.parts[-3] for path in opened} <= {"other_agent"}


def test_what_was_taken_out_before_stays_is_not_found_and_comes_back(bsd: Call, root: Path) -> None:
    path = root / "agents/main/sessions/alpha.jsonl"
    before = path.read_bytes()
    word = "zanzibar"
    path.write_bytes(before.replace(b"the ", word.encode() + b" ", 1))
    before = path.read_bytes()
    assert word.encode() in before
    rest(root)
    assert bsd("extract", "main/alpha").code == 0
    assert [one["session"] for one in bsd("search", "--all", word, "--json").document["results"]]
    store = root / "extracted" / "main_alpha"
    stored = sorted(file.name for file in store.glob("[0-9]*.json"))
    bsd("exclude", "main/alpha")
    for search in (("search", word), ("search", "--all", word)):
        document = bsd(*search, "--json").document
        assert (document["results"], document["sessions"]) == ([], [])
    # Neither retention nor a full check touches it.
    grow_old(root)
    layout = Layout(root)
    RetentionRun(layout, actor="cli").clean_all(PruningConfig(retention="30m"))
    assert sorted(file.name for file in store.glob("[0-9]*.json")) == stored
    assert bsd("verify").code == 0
    rest(root)
    ended = bsd("restore-all", "--yes", "--keep-enabled")
    assert "Excluded sessions were left out" in ended.err
    assert b"[[extracted-" in path.read_bytes()
    lines = path.read_bytes().splitlines()
    entry = json.loads(next(line for line in lines if b"_extracted" in line))
    assert bsd("restore", "main/alpha", entry["id"]).code == 0
    rest(root)
    assert bsd("restore-all", "main/alpha", "--to", str(root / "whole")).code == 0
    bsd("config", "set", "enabled", "false")
    assert bsd("restore-all", "main/alpha", "--yes").code == 0
    assert path.read_bytes() == before


def test_forgetting_works_by_name(bsd: Call, root: Path) -> None:
    rest(root)
    bsd("extract", "main/alpha")
    bsd("exclude", "main/alpha")
    assert bsd("archive", "forget", "main/alpha", "--yes").code == 0
    assert not list((root / "extracted").glob("main_alpha/[0-9]*.json"))


def test_what_another_session_refers_to_is_not_lost_though_that_is_excluded(
    bsd: Call, root: Path
) -> None:
    rest(root)
    bsd("extract", "main/alpha")
    source = root / "agents/main/sessions/alpha.jsonl"
    before = source.read_bytes()
    copy = add_session(root, "main/fork", before)
    bsd("exclude", "main/fork")
    assert bsd("delete", "main/alpha", "--permanent", "--yes").code == 0
    bsd("exclude", "--remove", "main/fork")
    rest(root)
    assert bsd("restore-all", "main/fork", "--yes").code == 0
    assert b"[[extracted-" not in copy.read_bytes()


def test_bsd_toml_has_a_list_of_its_own(bsd: Call, tmp_path: Path) -> None:
    settings = tmp_path / "bsd.toml"
    settings.write_text('exclude = ["main"]\n')
    config = ("--config", str(settings))
    assert {one.split("/")[0] for one in listed(bsd, *config)} == {"other_agent"}
    ended = bsd("show", "main/alpha", *config)
    assert "remove 'main' from `exclude` in bsd.toml" in ended.err
    ended = bsd("exclude", "--remove", "main", *config)
    assert (ended.code, f"'main' is set in {settings}" in ended.err) == (1, True)
    assert bsd("exclude", "--json", *config).document["exclude"][0]["fixed"] is True


def test_broken_settings_hide_all_sessions_but_keep_no_value_away(bsd: Call, root: Path) -> None:
    rest(root)
    bsd("extract")
    (root / ".brainsurgeon/config.json").write_text("{")
    exclude._read.clear()  # as in another process
    ended = bsd("sessions")
    assert (ended.code, "which may exclude sessions" in ended.err) == (78, True)
    rest(root)
    bsd("restore-all", "--yes")
    found = (root / "agents").rglob("*.jsonl")
    assert not any(b"[[extracted-" in path.read_bytes() for path in found)


def test_a_session_beside_an_excluded_one_has_its_parts(bsd: Call, root: Path) -> None:
    add_session(root, "main/alphabet", sample(turns=2, seed=9))
    bsd("exclude", "main/alpha")
    assert {"main/alphabet", "main/beta"} <= listed(bsd)
    assert bsd("show", "main/alpha").code != 0
    assert bsd("show", "alphab").code == 0

"""`bsd archive` on sessions of which only prompts are left, and on whole projects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.test_sources_command import with_sources
from tests.commands import Ended
from tests.maintenance.keeping import ClaudeHome
from tests.maintenance.remembering import id_of, prompt, write_history

Bsd = Callable[..., Ended]
NAME = f"claude:-home-ada-shop/{id_of(1)}"


@pytest.fixture
def home(tmp_path: Path) -> ClaudeHome:
    return ClaudeHome.of(tmp_path, 2, small=True)


@pytest.fixture
def call(bsd: Call, tmp_path: Path, home: ClaudeHome) -> Bsd:
    """Call bsd with Claude Code's directory as a source; its history names lost sessions."""
    shop = "/home/ada/shop"
    write_history(
        home.source,
        prompt("look", home.names[0].session),
        prompt("why is the \x1b[31mbasket empty?", id_of(1), shop),
        prompt("/model", id_of(1), shop, hours=1),
        prompt("then mend it", id_of(1), shop, hours=2),
        prompt("another basket", id_of(2), hours=3),
        prompt("from an old version", None),
    )

    def run(*arguments: str) -> Ended:
        return with_sources(bsd, tmp_path, *arguments, kind="claude-code", claude=home.source)

    return run


def test_they_are_listed_with_project_time_and_prompts(call: Bsd) -> None:
    ended = call("archive", "list")
    assert ended.code == 0
    assert "Prompts only (2 sessions that had no copy)" in ended.out
    row = next(line for line in ended.out.splitlines() if line.startswith(NAME))
    assert row.split()[1] == "/home/ada/shop"
    assert " 3 " in row
    assert "basket empty?" in row
    assert "\x1b" not in ended.out
    assert "1 line of the history of claude left out" in ended.err
    document = call("archive", "list", "--json").document
    assert document["sessions"] == []
    newest, other = document["prompts_only"]
    assert (newest["status"], newest["prompts"]) == ("prompts only", 1)
    assert (other["session"], other["prompts"]) == (NAME, 3)
    assert "prompts_only_more" not in document
    short = call("archive", "list", "--limit", "1", "--json").document
    assert (len(short["prompts_only"]), short["prompts_only_more"]) == (1, 1)


def test_without_a_history_nothing_is_said_of_it(call: Bsd, home: ClaudeHome) -> None:
    (home.source.parent / "history.jsonl").unlink()
    assert "prompts" not in call("archive", "list").out.casefold()
    assert "prompts_only" not in call("archive", "list", "--json").document


@pytest.mark.parametrize(
    "named", [NAME, id_of(1), id_of(1)[:8], f"claude:-home-ada-shop/{id_of(1)[:8]}"]
)
def test_their_prompts_are_shown(call: Bsd, named: str) -> None:
    ended = call("archive", "show", named)
    assert (ended.code, ended.err) == (0, "")
    assert "prompts only, in /home/ada/shop" in ended.out
    assert ended.out.index("basket empty?") < ended.out.index("/model")
    assert "then mend it" in ended.out
    page = call("archive", "show", named, "--from", "1", "--limit", "1", "--json").document
    assert [one["text"] for one in page["prompts"]] == ["/model"]
    assert page["next"] == 2


def test_they_are_found(call: Bsd) -> None:
    ended = call("archive", "search", "basket")
    assert ended.code == 0
    assert ended.out.index("another basket") < ended.out.index("basket empty?")
    assert "2 prompts" in ended.out
    found = call("archive", "search", "empty basket", "--json").document["prompts"]
    assert [one["session"] for one in found] == [NAME]
    assert call("archive", "search", "look", "--json").document.get("prompts") is None
    assert "Nothing was found" in call("archive", "search", "cellar").out


def test_they_are_not_brought_back(call: Bsd) -> None:
    ended = call("archive", "bring-back", id_of(1)[:8])
    assert ended.code == 1
    assert f"only the prompts of {NAME} are left" in ended.err
    assert f"Try: `bsd archive show {NAME}` shows them" in ended.err


def test_a_name_that_nothing_has_is_as_before(call: Bsd) -> None:
    ended = call("archive", "show", "ffff")
    assert ended.code == 1
    assert "there is no copy of ffff in the archive" in ended.err


def test_of_one_that_was_copied_the_copy_counts(call: Bsd, home: ClaudeHome) -> None:
    assert call("archive", "keep").code == 0
    shutil.rmtree(home.source / "-home-me-project")
    listed = call("archive", "list", "--json").document
    assert len(listed["sessions"]) == 4
    assert len(listed["prompts_only"]) == 2


def test_a_project_is_forgotten(call: Bsd, home: ClaudeHome) -> None:
    assert call("archive", "keep").code == 0
    shutil.rmtree(home.source / "-home-me-project")
    dry = call("archive", "forget", "--project", "/home/me/project", "--dry-run")
    assert dry.code == 0
    assert "4 sessions of claude:-home-me-project would be forgotten" in dry.out
    asked = call("archive", "forget", "--project", "/home/me/project")
    assert asked.code == 2
    assert "--yes" in asked.err
    done = call("archive", "forget", "--project", "/home/me/project", "--yes")
    assert done.code == 0
    assert "4 sessions of claude:-home-me-project forgotten" in done.out
    assert "still has 2 prompts" in done.err
    assert call("archive", "list", "--json").document["sessions"] == []


@pytest.mark.parametrize(
    "arguments",
    [(), ("main/alpha", "--project", "main"), ("main/alpha", "--dry-run")],
    ids=["nothing", "both", "dry run of one"],
)
def test_what_cannot_be_meant_is_refused(bsd: Call, arguments: tuple[str, ...]) -> None:
    ended = bsd("archive", "forget", *arguments)
    assert ended.code == 2
    assert "Try: " in ended.err

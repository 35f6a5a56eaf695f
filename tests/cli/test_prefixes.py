"""Sessions and entries by the beginnings of their names, and the tab key's suggestions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call, rest
from tests.commands import Ended
from tests.openclaw_tree import add_session
from tests.session_files import HEADER

LONG = "4f2a1111-aaaa-4bbb-8ccc-000000000001"


def message(entry_id: str, role: str, text: str) -> dict[str, Any]:
    more = {"toolCallId": "c", "toolName": "read"} if role == "toolResult" else {}
    content = [{"type": "text", "text": text}]
    return {
        "type": "message",
        "id": entry_id,
        "message": {"role": role, "content": content, **more},
    }


def transcript(*ids: str) -> bytes:
    entries = [HEADER, *(message(one, "toolResult", f"{one} " * 400) for one in ids)]
    entries += [message(f"last{n}", "assistant", "done") for n in range(4)]
    return b"".join(json.dumps(one).encode() + b"\n" for one in entries)


@pytest.fixture
def many(bsd: Call, root: Path) -> Call:
    add_session(root, f"main/{LONG}", transcript("1c556fa0", "1c99", "1c99bb", "7"))
    add_session(root, "main/4f2b", transcript("e1"))
    add_session(root, "main/4f2b-topic-7", transcript("e1"))
    rest(root)
    return bsd


# --- sessions ---


@pytest.mark.parametrize("text", ["main/4f2a", "ma/4f2a1", "4f2a", LONG, f"main/{LONG}"])
def test_the_only_one_that_begins_so_is_meant(many: Call, text: str) -> None:
    assert many("--json", "show", text).document["session"] == f"main/{LONG}"


@pytest.mark.parametrize("command", ["show", "context", "history"])
def test_every_command_understands_it(many: Call, command: str) -> None:
    ended = many("--json", command, "main/al")
    assert (ended.code, ended.document["session"]) == (0, "main/alpha")
    assert ended.err == "", "who only looks is told nothing"


def test_the_root_may_be_named_behind_it(many: Call, root: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "agents").mkdir(parents=True)
    ended = Call(tmp_path / "other", many.capture, many.patch)(
        "--json", "show", "4f2a", "--root", str(root)
    )
    assert ended.document["session"] == f"main/{LONG}"


def test_a_whole_name_counts_before_one_that_goes_on(many: Call) -> None:
    assert many("--json", "show", "main/4f2b").document["session"] == "main/4f2b"
    assert many("--json", "show", "4f2b").document["session"] == "main/4f2b"
    assert many("--json", "show", "main/4f2b-").document["session"] == "main/4f2b-topic-7"


@pytest.mark.parametrize("argv", [("show",), ("delete", "--yes"), ("extract",), ("restore-all",)])
def test_several_are_listed_and_nothing_is_done(
    many: Call, root: Path, argv: tuple[str, ...]
) -> None:
    ended = many(argv[0], "main/4f", *argv[1:])
    assert ended.code == 2
    assert "the names of 3 sessions begin with main/4f" in ended.err
    for name in (f"main/{LONG}", "main/4f2b", "main/4f2b-topic-7"):
        assert name in ended.err
    assert not (root / "trash").exists()


def test_none_is_not_found(many: Call) -> None:
    ended = many("show", "main/nobody")
    assert (ended.code, "there is no session main/nobody" in ended.err) == (1, True)
    ended = many("show", "nobody")
    assert (ended.code, "'nobody' does not name a session" in ended.err) == (2, True)


@pytest.mark.parametrize("text", ["main/", "/4f2a", "", "../4f2a", "main/..", "main/4*"])
def test_what_is_no_name_is_refused(many: Call, text: str) -> None:
    assert many("show", text).code == 2


def test_who_destroys_is_told_the_whole_name(many: Call, root: Path) -> None:
    ended = many("delete", "4f2a", "--yes")
    assert ended.code == 0
    assert f"4f2a is main/{LONG}" in ended.err
    assert f"main/{LONG} is deleted" in ended.out
    assert not (root / f"agents/main/sessions/{LONG}.jsonl").exists()
    assert "is main" not in many("delete", "main/beta", "--yes").err


# --- entries ---


def test_an_entry_by_the_beginning_of_its_id(many: Call, root: Path) -> None:
    assert many("extract", "4f2a").code == 0
    rest(root)
    shown = many("--json", "show", "4f2a", "--entry", "1c5").document["entries"]
    assert [one["id"] for one in shown] == ["1c556fa0"]
    text = many("show", "4f2a", "--entry", "1c5", "--key", "text").out
    assert text.startswith("1c556fa0 ")
    ended = many("--json", "restore", "4f2a", "1c5")
    assert (ended.code, ended.document["entry_id"]) == (0, "1c556fa0")
    assert "1c5 is 1c556fa0" in ended.err
    rest(root)
    done = many("--json", "set-extractable", "4f2a", "1c5", "false").document
    assert done["entry_id"] == "1c556fa0"


def test_a_whole_id_and_a_line_number_count_before_a_beginning(many: Call) -> None:
    def entry(text: str) -> Any:
        return many("--json", "show", "4f2a", "--entry", text).document["entries"][0]

    assert entry("1c99")["id"] == "1c99"
    assert entry("7")["id"] == "7"
    assert entry("2")["index"] == 2
    assert entry("#1")["index"] == 1


def test_several_entries_are_listed(many: Call) -> None:
    ended = many("set-extractable", "4f2a", "1c", "false")
    assert ended.code == 2
    assert f"the names of 3 entries of main/{LONG} begin with 1c" in ended.err
    assert "1c556fa0, 1c99, 1c99bb" in ended.err
    assert many("show", "4f2a", "--entry", "zz").code == 1


def test_the_agents_commands_know_them_too(many: Call, root: Path) -> None:
    assert many("extract", "4f2a").code == 0
    rest(root)
    argv = ("restore_remote", "--session", "main/4f2a", "--entry", "1c5", "--text-only")
    ended = many("--json", *argv)
    assert (ended.code, ended.document["entry_id"]) == (0, "1c556fa0")
    assert many("purge_control", "get_context", "--session", "4f2a").code == 0
    assert many("restore_remote", "--session", "nobody", "--entry", "x").code == 1


def test_the_trash_knows_them_too(many: Call) -> None:
    assert many("delete", "4f2a", "--yes").code == 0
    assert many("delete", "main/4f2b", "--yes").code == 0
    ended = many("trash", "delete", "main/4", "--yes")
    assert ended.code == 2
    assert "sessions in the trash begin with main/4" in ended.err
    ended = many("trash", "restore", "4f2a")
    assert (ended.code, ended.out) == (0, f"main/{LONG} is back\n")
    ended = many("trash", "delete", "main_4f2b", "--yes")
    assert (ended.code, "main_4f2b is main_4f2b_" in ended.err) == (0, True)
    assert many("trash", "restore", "zz").code in {1, 2}


# --- capitals ---


@pytest.mark.parametrize("text", ["MAIN/4F2A", "4F2A", LONG.upper(), f"main/{LONG.upper()}"])
def test_capitals_do_not_matter_where_nothing_begins_so(many: Call, text: str) -> None:
    assert many("--json", "show", text).document["session"] == f"main/{LONG}"


def test_capitals_count_where_a_name_begins_so(many: Call, root: Path) -> None:
    add_session(root, "main/4F2A-other", transcript("E1", "e1f"))
    rest(root)
    assert many("--json", "show", "4F2A").document["session"] == "main/4F2A-other"
    assert many("--json", "show", "4f2a").document["session"] == f"main/{LONG}"
    entry = many("--json", "show", "4F2A", "--entry", "E1F").document["entries"][0]
    assert entry["id"] == "e1f"
    ended = many("show", "4F2")
    assert ended.code == 0, "one begins exactly so"
    ended = many("show", "4F2B-T")
    assert (ended.code, "4f2b-topic-7" in many("--json", "show", "4F2B-T").out) == (0, True)


def test_who_changes_something_by_capitals_is_told_the_name(many: Call, root: Path) -> None:
    ended = many("set-extractable", "4F2A", "1C5", "false")
    assert ended.code == 0
    assert f"4F2A is main/{LONG}" in ended.err
    assert "1C5 is 1c556fa0" in ended.err
    assert many("delete", "MAIN/BETA", "--yes").code == 0
    ended = many("trash", "restore", "MAIN/BE")
    assert (ended.code, ended.out) == (0, "main/beta is back\n")


def test_what_is_kept_of_a_name_is_not_taken_for_another_spelling(many: Call, root: Path) -> None:
    (root / "extracted" / "main_4F2B").mkdir(parents=True)
    ended = many("delete", "main/4F2B", "--yes")
    assert "main/4f2b" not in ended.out + ended.err
    assert (root / "agents/main/sessions/4f2b.jsonl").exists()


# --- completion ---


def offered(bsd: Call, line: str, **env: str) -> list[str]:
    ended: Ended = bsd("unused", _BSD_COMPLETE="bash_complete", COMP_WORDS=line, **env)
    return [each.partition(",")[2] for each in ended.out.splitlines() if each]


@pytest.fixture
def at_home(many: Call, root: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("OPENCLAW_ROOT", str(root))
    return many


def test_names_are_offered(at_home: Call, root: Path) -> None:
    assert offered(at_home, "bsd sho") == ["show"]
    assert offered(at_home, "bsd show main/al") == ["main/alpha"]
    assert set(offered(at_home, "bsd show ")) >= {"main/alpha", "other_agent/gamma", "main/4f2b"}
    assert offered(at_home, "bsd delete gam") == ["other_agent/gamma"]
    assert offered(at_home, "bsd extract main/alpha main/be") == ["main/beta"]
    assert offered(at_home, f"bsd --root {root} show main/al") == ["main/alpha"]
    assert offered(at_home, "bsd sessions --agent o") == ["other_agent"]
    assert offered(at_home, "bsd config get keep_r") == [
        *("keep_recent", "keep_restore_remote_calls")
    ]
    assert offered(at_home, "bsd config set last") == []
    assert offered(at_home, "bsd config set enabled ") == ["true", "false"]
    assert offered(at_home, "bsd config set scope d") == ["display"]
    assert offered(at_home, "bsd logs --level tr") == ["trace"]
    assert at_home("delete", "main/beta", "--yes").code == 0
    (trashed,) = offered(at_home, "bsd trash restore main_b")
    assert trashed.startswith("main_beta_")
    assert offered(at_home, "bsd memory confirm main_b") == [], "a fact is nothing in the trash"


def test_entries_are_offered_those_that_are_away_first(at_home: Call, root: Path) -> None:
    assert offered(at_home, "bsd restore main/4f2a 1c5") == ["1c556fa0"], "by the beginning, too"
    assert at_home("extract", "4f2a").code == 0
    rest(root)
    found = offered(at_home, f"bsd restore main/{LONG} ")
    assert found[:4] == ["1c556fa0", "1c99", "1c99bb", "7"]
    assert offered(at_home, f"bsd show main/{LONG} --entry la")[0] == "last3"


def test_bash_breaks_words_at_colons(at_home: Call, root: Path) -> None:
    add_session(root, "cc:-home-me/4f", transcript("e1"))
    line = "bsd show cc:-ho"
    assert offered(at_home, line) == ["cc:-home-me/4f"]
    assert offered(at_home, line, COMP_WORDBREAKS=" \t\n:=") == ["-home-me/4f"]


@pytest.mark.parametrize(
    "line",
    [
        *("bsd show main/..", "bsd show '", "bsd jobs run ", "bsd restore nobody/x ", "bsd "),
        *("bsd --root /nowhere show ", "bsd trash restore ../", "bsd workspace run "),
    ],
)
def test_nothing_that_goes_wrong_is_shown(at_home: Call, line: str) -> None:
    ended = at_home("unused", _BSD_COMPLETE="bash_complete", COMP_WORDS=line)
    assert (ended.code, ended.err) == (0, "")


def test_odd_names_are_not_offered(at_home: Call, root: Path) -> None:
    odd = {"type": "message", "id": "$(reboot)", "message": {"role": "user", "content": "x"}}
    path = root / f"agents/main/sessions/{LONG}.jsonl"
    with path.open("ab") as stream:
        stream.write(json.dumps(odd).encode() + b"\n")
    assert "$(reboot)" not in offered(at_home, f"bsd restore main/{LONG} ")
    os.rename(path, path.with_name("a b.jsonl"))
    assert not [name for name in offered(at_home, "bsd show main/") if " " in name]

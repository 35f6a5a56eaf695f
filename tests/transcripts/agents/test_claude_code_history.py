"""Claude Code's history of prompts: how it is read, and how projects are named."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from bsd.transcripts.agents.claude_code import history as claude_code_history
from bsd.transcripts.agents.claude_code.history import project_name, remembered_prompts
from bsd.transcripts.agents.program import RememberedPrompt
from tests.maintenance.remembering import LATE_2026, id_of, prompt, write_history
from tests.needs import NOBODY


def read(projects: Path) -> tuple[list[RememberedPrompt], Counter[str]]:
    left_out: Counter[str] = Counter()
    found = list(remembered_prompts(projects, lambda why: left_out.update([why])))
    return found, left_out


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    path = tmp_path / ".claude" / "projects"
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("/home/ada/shop", "-home-ada-shop"),
        ("/home/ada/my shop_2.0", "-home-ada-my-shop-2-0"),
        ("/srv/café", "-srv-caf-"),
        ("/srv/\N{ROCKET}", "-srv---"),
        # Names of more than 200 characters end in a hash of the whole path.
        ("/" + "a" * 199, "-" + "a" * 199),
        ("/" + "a" * 200, "-" + "a" * 199 + "-b6ymvl"),
        ("/" + "\N{ROCKET}é" * 80, ("-" * 200) + "-kgtw41"),
    ],
)
def test_a_project_is_called_as_the_program_calls_it(directory: str, name: str) -> None:
    assert project_name(directory) == name


def test_a_prompt_is_read_as_it_was_typed(projects: Path) -> None:
    text = "fix the basket\nand \ud83d say so".encode("utf-16", "surrogatepass")
    typed = text.decode("utf-16", "surrogatepass")
    line = b'{"display":"fix the basket\\nand \\ud83d say so","pastedContents":{},'
    line += b'"timestamp":%d,"project":"/home/ada/shop","sessionId":"%s"}' % (
        LATE_2026,
        id_of(1).encode(),
    )
    write_history(projects, line)  # without a newline, as the last line may be
    [found], left_out = read(projects)
    assert found.text == typed
    assert found.session == id_of(1)
    assert found.directory == projects / "-home-ada-shop"
    assert found.time == LATE_2026 / 1000
    assert not left_out


@pytest.mark.parametrize(
    "odd",
    [
        *(b"\0" * 4000 + b"\n", b"[]\n", b'"text"\n', b"{}\n", b"{\n", b'{"display":"torn\n'),
        *(prompt("old version", None), prompt("x", "../../etc/passwd"), prompt("x", "short")),
        *(prompt("x", id_of(1), timestamp="now"), prompt("x", id_of(1), timestamp=True)),
        *(prompt("x", id_of(1), timestamp=-1), prompt("x", id_of(1), timestamp=1e300)),
        *(prompt("x", id_of(1), project=""), prompt("x", id_of(1), display=["x"])),
        b'{"display":' + b"[" * 100_000 + b"\n",
    ],
)
def test_an_odd_line_is_left_out_and_counted(
    projects: Path, odd: dict[str, object] | bytes
) -> None:
    whole = prompt("look", id_of(2))
    write_history(projects, whole, odd, b"\n", whole)
    found, left_out = read(projects)
    assert [one.text for one in found] == ["look", "look"]
    assert left_out.total() == 1


def test_a_line_that_is_too_long_stops_no_other(projects: Path) -> None:
    whole = prompt("look", id_of(2))
    long = b"x" * (claude_code_history._LONGEST_LINE + (3 << 20)) + b"\n"
    write_history(projects, whole, long, whole)
    found, left_out = read(projects)
    assert (len(found), left_out.total()) == (2, 1)


def test_of_a_very_large_file_the_end_is_read(
    projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude_code_history, "_MOST_BYTES", 1000)
    write_history(projects, *(prompt(f"number {number}", id_of(2)) for number in range(100)))
    found, left_out = read(projects)
    assert 1 <= len(found) < 10
    assert found[-1].text == "number 99"
    assert left_out.total() == 1


def test_no_history_is_no_error(projects: Path) -> None:
    assert read(projects) == ([], Counter())


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_what_is_no_plain_file_is_an_error_at_once(projects: Path, kind: str) -> None:
    path = projects.parent / "history.jsonl"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/etc/passwd")
        case "directory":
            path.mkdir()
    with pytest.raises(OSError, match="plain file"):
        read(projects)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_another_users_history_is_not_believed(projects: Path) -> None:
    path = write_history(projects, prompt("look", id_of(2)))
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(OSError, match=f"uid {NOBODY}"):
        read(projects)


@pytest.mark.parametrize(
    ("text", "is_command"),
    [
        ("/exit", True),
        ("exit", True),
        ("/model opus", True),
        ("/review the diff", False),
        ("go", False),
    ],
)
def test_commands_that_ask_the_model_nothing_are_told(
    projects: Path, text: str, *, is_command: bool
) -> None:
    write_history(projects, prompt(text, id_of(2)))
    [found], _ = read(projects)
    assert found.is_command is is_command

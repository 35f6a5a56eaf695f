"""Start-up stays light: what is imported before it is needed is paid for by every call."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from bsd.cli.commands import COMMANDS, help_page, takes_lock
from bsd.cli.main import bsd
from bsd.core.verb_names import split_command

_HEAVY = {
    *("pydantic", "pydantic_settings", "structlog", "rich", "orjson", "filelock", "croniter"),
    *("mcp", "mcp_types", "anyio"),
}


def _modules_after(*argv: str, **variables: str) -> set[str]:
    program = (
        "import sys\n"
        f"sys.argv = ['bsd', *{argv!r}]\n"
        "from bsd.__main__ import main\n"
        "main()\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize("argv", [["--help"], ["-h"], []])
def test_the_first_help_page_needs_no_library_at_all(argv: list[str]) -> None:
    loaded = {name.partition(".")[0] for name in _modules_after(*argv)}
    assert not loaded & (_HEAVY | {"click", "dataclasses", "inspect", "json"})


@pytest.mark.parametrize(
    "argv",
    [
        ["config", "--help"],
        ["--version"],
    ],
)
def test_help_of_a_command_whose_work_is_heavy_needs_nothing_but_click(argv: list[str]) -> None:
    loaded = _modules_after(*argv)
    assert "click" in loaded
    assert not {name.partition(".")[0] for name in loaded} & (_HEAVY - {"filelock", "orjson"})
    assert "bsd.sessions.surgeon" not in loaded


def test_the_tab_key_offers_commands_without_loading_any() -> None:
    loaded = _modules_after(_BSD_COMPLETE="bash_complete", COMP_WORDS="bsd co")
    assert "bsd.cli.main" in loaded
    some = {"bsd.cli.config", "bsd.cli.completion", "bsd.cli.verbs", "bsd.actions.verb"}
    assert not some & loaded
    assert not {name.partition(".")[0] for name in loaded} & (_HEAVY - {"orjson"})


# --- the list of commands: true, complete, and enough to print help and to know who takes locks ---


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_can_be_loaded_and_says_what_the_list_says(name: str) -> None:
    command = bsd.get_command(click.Context(bsd), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").startswith(COMMANDS[name].help)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "config"])
def test_every_command_has_an_example_and_takes_the_global_options(name: str) -> None:
    command = bsd.get_command(click.Context(bsd), name)
    assert command is not None
    assert f"\n  bsd {name}" in (command.help or "")
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--root", "--config", "--json"} <= options


def test_the_help_page_names_every_command_and_fits() -> None:
    page = help_page()
    assert all(f"\n  {name} " in page for name in COMMANDS)
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "takes"),
    [
        ("extract", True),
        ("--root x extract main/a", True),
        ("--root=x --json extract", True),
        ("--root extract sessions", False),  # a directory of that name
        ("extract --dry-run", False),
        ("extract --help", False),
        ("restore main/a e1", True),
        ("restore-all", True),
        ("set-extractable main/a e1 true", True),
        ("verify", False),
        ("verify --repair", True),
        ("restore_remote --session s --entry e", True),
        ("purge_control restore e --session s", True),
        ("purge_control get_context --session s", False),
        ("purge_control --action get_context --session s", False),
        ("mcp", True),
        ("mcp --agent main", True),
        ("mcp --help", False),
        ("demo", True),
        ("sessions", False),
        ("show main/extract", False),
        ("config set enabled false", False),
        ("nonsense", False),
        ("", False),
        ("--root", False),
    ],
)
def test_who_takes_the_lock_of_a_session(line: str, takes: bool) -> None:
    assert takes_lock(line.split()) is takes


def test_a_command_line_is_parted_at_the_command() -> None:
    parts = split_command(["--host", "openclaw", "--json", "show", "a/b", "--full"])
    assert parts == (["--host", "openclaw", "--json"], "show", ["a/b", "--full"])

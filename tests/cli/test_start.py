"""The registry of commands is true and complete, and help and the tab key import little."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import cleandoc

import click
import pytest

from bsd.cli.commands import COMMANDS, takes_lock
from bsd.cli.main import bsd


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


@pytest.mark.parametrize("argv", [["--help"], ["-h"], [], ["--version"]])
def test_the_first_help_page_imports_no_command(argv: list[str]) -> None:
    loaded = _modules_after(*argv)
    assert "bsd.cli.main" in loaded
    assert not loaded & {"bsd.cli.completion", "bsd.sessions.editor", "pydantic", "mcp"}


def test_the_tab_key_offers_commands_without_importing_any() -> None:
    loaded = _modules_after(_BSD_COMPLETE="bash_complete", COMP_WORDS="bsd co")
    assert "bsd.cli.main" in loaded
    assert not loaded & {"bsd.cli.config", "bsd.cli.completion", "pydantic"}


# --- the registry ---


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_says_what_the_registry_says(name: str) -> None:
    command = bsd.get_command(click.Context(bsd), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").startswith(f"{COMMANDS[name].help}\n")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "config"])
def test_every_command_has_an_example_and_takes_the_global_options(name: str) -> None:
    command = bsd.get_command(click.Context(bsd), name)
    assert command is not None
    assert f"\n  bsd {name}" in cleandoc(command.help or "")
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--root", "--config", "--json"} <= options


def test_the_help_page_names_every_command_and_fits() -> None:
    page = bsd.get_help(click.Context(bsd, terminal_width=80))
    assert all(f"\n  {name} " in page for name in COMMANDS)
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "takes"),
    [
        ("extract", True),
        ("--root x extract main/a", True),
        ("--root=x --json extract", True),
        ("restore main/a e1", True),
        ("restore-all", True),
        ("set-extractable main/a e1 true", True),
        ("delete main/a", True),
        ("trash restore x", True),
        ("verify --repair", True),
        ("restore_remote --session s --entry e", True),
        ("purge_control restore e --session s", True),
        ("mcp --agent main", True),
        ("run", True),
        ("demo", True),
        ("sessions", False),
        ("show main/extract", False),
        ("config set enabled false", False),
        ("nonsense", False),
        ("", False),
        ("--root", False),
    ],
)
def test_which_command_lines_take_the_lock_of_a_session(line: str, takes: bool) -> None:
    assert takes_lock(line.split()) is takes

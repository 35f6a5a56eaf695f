"""Start-up stays light: what is imported before it is needed is paid for by every call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sessions import sample

_HEAVY = {
    *("pydantic", "pydantic_settings", "structlog", "rich", "orjson", "filelock", "croniter"),
    *("mcp", "mcp_types", "anyio"),
}


def _modules_after(*argv: str) -> set[str]:
    program = (
        "import sys\n"
        f"sys.argv = ['bsd', *{argv!r}]\n"
        "from bsd.__main__ import main\n"
        "main()\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
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
        *(["config", "--help"], ["doctor", "--help"], ["mcp", "--help"]),
        *(["restore_remote", "--help"], ["--version"]),
    ],
)
def test_help_of_a_command_needs_nothing_but_click(argv: list[str]) -> None:
    loaded = _modules_after(*argv)
    assert "click" in loaded
    assert not {name.partition(".")[0] for name in loaded} & _HEAVY
    assert "bsd.session.surgeon" not in loaded


@pytest.mark.parametrize("verb", ["extract", "restore", "edit", "delete"])
def test_help_of_a_verb_needs_nobody_who_does_it(verb: str) -> None:
    loaded = _modules_after(verb, "--help")
    assert "click" in loaded
    assert not {name.partition(".")[0] for name in loaded} & (_HEAVY - {"orjson"})
    assert "bsd.session.surgeon" not in loaded


@pytest.mark.parametrize("command", ["extract --dry-run main/a", "show main/a", "context main/a"])
def test_looking_needs_neither_a_surgeon_nor_what_checks_settings(
    tmp_path: Path, command: str
) -> None:
    sessions = tmp_path / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "a.jsonl").write_bytes(sample(2))
    loaded = _modules_after("--root", str(tmp_path), *command.split())
    too_much = {
        "pydantic",
        "structlog",
        "filelock",
        "asyncio",
        "rich.console",
        "bsd.session.surgeon",
    }
    assert "bsd.session.queries" in loaded
    assert not loaded & too_much

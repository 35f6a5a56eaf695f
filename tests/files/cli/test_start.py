"""Start-up stays light: what is imported before it is needed is paid for by every call."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    assert done.stdout.startswith(("Usage: bsd", "bsd "))
    return set(done.stderr.split())


@pytest.mark.parametrize("argv", [["--help"], ["-h"], []])
def test_the_first_help_page_needs_no_library_at_all(argv: list[str]) -> None:
    loaded = {name.partition(".")[0] for name in _modules_after(*argv)}
    assert not loaded & (_HEAVY | {"click", "dataclasses", "inspect", "json"})


@pytest.mark.parametrize(
    "argv",
    [
        *(["extract", "--help"], ["config", "--help"], ["doctor", "--help"], ["mcp", "--help"]),
        *(["restore_remote", "--help"], ["--version"]),
    ],
)
def test_help_of_a_command_needs_nothing_but_click(argv: list[str]) -> None:
    loaded = _modules_after(*argv)
    assert "click" in loaded
    assert not {name.partition(".")[0] for name in loaded} & _HEAVY
    assert "bsd.surgeon" not in loaded

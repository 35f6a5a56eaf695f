"""The man page and the shell completions: up to date, and readable for man and the shells."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import require_program
from tests.packaging.units import TOP

_MAN_PAGE = TOP / "contrib" / "man" / "bsd.1"
_COMPLETIONS = TOP / "contrib" / "completions"


def test_they_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(TOP / "packaging" / "generate.py"), "--check"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_groff_has_no_objection_to_the_man_page() -> None:
    command = [require_program("groff"), "-man", "-Tutf8", "-ww", str(_MAN_PAGE)]
    done = subprocess.run(command, check=True, capture_output=True)
    assert done.stderr == b""
    shown = re.sub("\x1b\\[[0-9;]*m|.\x08", "", done.stdout.decode())  # bold, in both encodings
    assert "\\" not in shown  # no escape is left over
    assert "EXIT STATUS" in shown


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "bsd.bash"), ("zsh", "_bsd"), ("fish", "bsd.fish")]
)
def test_the_shell_accepts_its_completions(shell: str, name: str) -> None:
    subprocess.run([require_program(shell), "-n", str(_COMPLETIONS / name)], check=True)


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `bsd` is on PATH."""
    program = tmp_path / "bin" / "bsd"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bsd "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(TOP)}


def _completed(words: str, environ: dict[str, str]) -> set[str]:
    """Return bash's completions of the last word."""
    script = f"""
        source "{_COMPLETIONS / "bsd.bash"}"
        COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
        function_name=$(complete -p bsd | sed 's/.* -F //; s/ .*//')
        $function_name bsd
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [require_program("bash"), "--norc", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env=environ,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("bsd rest", {"restore", "restore-all", "restore_remote"}),
        ("bsd extract --dry", {"--dry-run"}),
        ("bsd config se", {"set"}),
    ],
)
def test_bash_completes(words: str, offered: set[str], on_path: dict[str, str]) -> None:
    assert _completed(words, on_path) == offered


def test_fish_completes(on_path: dict[str, str]) -> None:
    script = f'source "{_COMPLETIONS / "bsd.fish"}"; complete -C "bsd restore-"'
    done = subprocess.run(
        [require_program("fish"), "--no-config", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env=on_path,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["restore-all"]

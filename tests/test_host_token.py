from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bsd.__main__ as start
from bsd.__main__ import ensure_host_token, names_openclaw
from tests.needs import require_linux

# A program that calls ensure_host_token first, as bsd's programs do, and then prints its identity.
PROBE = """
import json, os, sys
from bsd.__main__ import ensure_host_token
before = sorted(sys.modules)
shown = ensure_host_token()
with open("/proc/self/cmdline") as file:
    cmdline = file.read().split("\\0")[:-1]
print(json.dumps({
    "shown": shown, "cmdline": cmdline, "argv": sys.argv[1:], "orig": sys.orig_argv,
    "pid": os.getpid(), "cwd": os.getcwd(), "stdin": sys.stdin.read(),
    "environment": {k: v for k, v in os.environ.items() if k != "LC_CTYPE"},
    "options": [sys.flags.dont_write_bytecode, sys.flags.utf8_mode, sys.warnoptions],
    "prefix": sys.prefix,
}))
"""


@pytest.fixture(autouse=True)
def linux() -> None:
    require_linux()


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    path = tmp_path / "probe.py"
    path.write_text(PROBE)
    return path


def run(*command: object, cwd: Path, **environment: str) -> Any:
    child = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    output, _ = child.communicate(b"typed")
    assert child.returncode == 0
    answer = json.loads(output)
    assert answer["pid"] == child.pid
    assert answer["stdin"] == "typed"
    assert answer["cwd"] == str(cwd)
    return answer


def test_a_script_runs_again_with_the_token_behind_its_name(probe: Path) -> None:
    answer = run(sys.executable, probe, "extract", "main/abc", "", "--json", cwd=probe.parent)
    arguments = ["--host", "openclaw", "extract", "main/abc", "", "--json"]
    assert answer["shown"] is True
    assert answer["argv"] == arguments
    assert answer["cmdline"] == [sys.executable, str(probe), *arguments]
    assert names_openclaw(answer["cmdline"])
    assert names_openclaw(answer["orig"])


def test_a_module_runs_again_with_the_interpreters_options(probe: Path) -> None:
    options = ["-B", "-X", "utf8", "-W", "error::UserWarning"]
    answer = run(sys.executable, *options, "-m", "probe", "restore", "-m", cwd=probe.parent)
    words = ["-m", "probe", "--host", "openclaw", "restore", "-m"]
    assert answer["cmdline"] == [sys.executable, *options, *words]
    assert answer["options"] == [1, 1, ["error::UserWarning"]]
    assert answer["argv"] == words[2:]


def test_a_console_script_runs_again_in_its_environment(probe: Path) -> None:
    script = probe.with_name("bsd-probe")
    script.write_text(f"#!{sys.executable}\n{PROBE}")
    script.chmod(0o755)
    answer = run(script, "extract", cwd=probe.parent)
    assert answer["cmdline"] == [sys.executable, str(script), "--host", "openclaw", "extract"]
    assert answer["prefix"] == sys.prefix


def test_the_environment_is_as_it_was(probe: Path) -> None:
    answer = run(sys.executable, probe, cwd=probe.parent, SOME="thing")
    expected = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "SOME": "thing"}
    expected.pop("LC_CTYPE", None)
    assert answer["environment"] == expected


def test_a_program_that_shows_the_token_runs_once(probe: Path) -> None:
    for words in (["--host", "openclaw"], ["--root", "/home/x/openclaw"]):
        answer = run(sys.executable, "./probe.py", *words, cwd=probe.parent)
        assert answer["shown"] is True
        assert answer["cmdline"] == [sys.executable, "./probe.py", *words]


def test_a_token_that_cannot_be_shown_is_tried_once(probe: Path) -> None:
    hidden = "import bsd.__main__\nbsd.__main__._command_line = lambda: []\n"
    probe.write_text(hidden + PROBE)
    answer = run(sys.executable, probe, cwd=probe.parent)
    assert answer["shown"] is False
    assert answer["argv"] == ["--host", "openclaw"]


def test_the_variable_of_another_process_does_not_count_as_tried(probe: Path) -> None:
    answer = run(sys.executable, probe, cwd=probe.parent, **{start._TRIED: "1"})
    assert answer["shown"] is True
    assert start._TRIED not in answer["environment"]


def test_descriptors_are_kept(tmp_path: Path, probe: Path) -> None:
    reading, writing = os.pipe()
    probe.write_text(f"{PROBE}\nos.write({writing}, b'through')\n")
    subprocess.run(
        [sys.executable, str(probe)],
        check=True,
        pass_fds=[writing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"through"


def test_arguments_that_were_changed_before_are_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "bsd", "extract"])
    monkeypatch.setattr(sys, "argv", ["bsd", "restore"])
    monkeypatch.setattr(start, "_command_line", lambda: sys.orig_argv)
    assert ensure_host_token() is False


def test_an_interpreter_that_is_gone_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "bsd", "extract"])
    monkeypatch.setattr(sys, "argv", ["bsd", "extract"])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(start, "_command_line", lambda: sys.orig_argv)
    assert ensure_host_token() is False
    assert start._TRIED not in os.environ


@pytest.mark.parametrize(
    ("argv", "accepted"),
    [
        (["python3", "bsd", "--host", "openclaw", "run"], True),
        (["openclaw"], True),
        (["node", "/usr/lib/node_modules/openclaw"], True),
        (["/usr/bin/openclaw", "gateway"], True),
        (["python3", "-m", "bsd", "run"], False),
        (["python3", "bsd", "--host=openclaw"], False),
        (["bsd", "--root", "/home/x/.openclaw"], False),
        (["openclaw-gateway"], False),
        ([], False),
    ],
)
def test_the_gateways_rule(argv: list[str], accepted: bool) -> None:
    assert names_openclaw(argv) is accepted

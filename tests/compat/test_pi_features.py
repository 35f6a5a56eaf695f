"""pi continues sessions with extracted values, and its copies get the values back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import pi_program
from tests.compat.beside import placeholders
from tests.compat.messages_api import Model
from tests.compat.pi_program import Commands, Pi

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def template(
    programs: str, served: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Pi, str]:
    """A home of pi with a session of three turns, and its path; to be copied."""
    top = tmp_path_factory.mktemp("pi")
    pi = Pi(pi_program.home(top / "template", top / "work", served), pi_program.newest(programs))
    return pi, str(pi_program.three_turns(pi).relative_to(pi.beside.top))


@pytest.fixture
def pi(template: tuple[Pi, str], tmp_path: Path) -> Pi:
    return Pi(template[0].beside.copy_to(tmp_path / "pi"), template[0].program)


@pytest.fixture
def path(pi: Pi, template: tuple[Pi, str]) -> Path:
    """The session's file, from which no value was extracted yet."""
    return pi.beside.top / template[1]


@pytest.fixture
def original(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def lean(pi: Pi, path: Path, original: bytes) -> bytes:
    """The session without its values."""
    pi.beside.extract()
    lean = path.read_bytes()
    assert len(lean) < len(original)
    assert placeholders(lean) == 4
    return lean


def test_it_goes_on_with_what_is_left_and_all_comes_back(
    pi: Pi, path: Path, original: bytes, lean: bytes, model: Model
) -> None:
    pi.run("And now?", "--continue")
    pi.run("And now?", "--session", str(path))
    assert "[[extracted-" in json.dumps(model.requests[-1]["messages"])
    pi.export(path, pi.beside.top / "page.html")
    grown = path.read_bytes()
    assert grown.startswith(lean)
    pi.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    pi.run("And with all of it?", "--continue")
    assert "[[extracted-" not in json.dumps(model.requests[-1]["messages"])


@pytest.mark.soak
def test_forks_of_a_session_that_is_gone_get_back_what_is_in_its_store(
    pi: Pi, path: Path, original: bytes, lean: bytes, node: str
) -> None:
    """Here and in another directory, by this version and an older version."""
    elsewhere = pi.beside.top / "elsewhere"
    elsewhere.mkdir()
    forks = []
    for program in (pi, Pi(pi.beside, pi_program.old(node))):
        for cwd in (pi.beside.work, elsewhere):
            before = pi.beside.files()
            program.run("Otherwise?", "--fork", str(path), cwd=cwd)
            forks.append(pi.beside.the_new_file(before))
    assert len({fork.parent for fork in forks}) == 2
    assert path.read_bytes() == lean
    path.unlink()
    pi.beside.restore_all()
    for fork in forks:
        assert_holds(fork, original)


def assert_holds(copy: Path, original: bytes) -> None:
    """Fail unless a copy of a session holds each line of it unchanged, except the header."""
    lines = copy.read_bytes().splitlines()
    assert [line for line in original.splitlines()[1:] if line not in lines] == []


@pytest.fixture
def commands(pi: Pi, path: Path, lean: bytes) -> Iterator[Commands]:
    assert path.read_bytes() == lean
    with pi.commanded("--session", str(path)) as commands:
        yield commands


@pytest.mark.soak
def test_names_compactions_and_copies_of_all_kinds(
    pi: Pi, path: Path, original: bytes, lean: bytes, commands: Commands
) -> None:
    commands.do("prompt", message="And now? " + "What was it? " * 40)
    commands.do("set_session_name", name="The book")
    asked = commands.do("get_fork_messages")["messages"]
    before = pi.beside.files()
    commands.do("clone")
    commands.do("prompt", message="In the clone")
    clone = pi.beside.the_new_file(before)
    commands.do("switch_session", sessionPath=str(path))
    before = pi.beside.files()
    commands.do("fork", entryId=asked[2]["entryId"])
    commands.do("prompt", message="In the fork")
    fork = pi.beside.the_new_file(before)
    grown = path.read_bytes()
    assert grown.startswith(lean)

    pi.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    assert_holds(clone, original)
    last = original.index(asked[2]["entryId"].encode())
    assert_holds(fork, original[: original.rindex(b"\n", 0, last) + 1])


@pytest.mark.soak
def test_an_imported_session_is_known_and_gets_all_back(
    pi: Pi, path: Path, original: bytes, lean: bytes, tmp_path: Path
) -> None:
    """It keeps the name of the file that it came from."""
    copy = tmp_path / "the-book.v1.jsonl"
    shutil.copyfile(path, copy)
    imported = path.with_name(copy.name)
    with pi.opened("--session", str(path)) as terminal:
        terminal.type(f"/import {copy}")
        terminal.type("", enter=True)  # yes
        terminal.wait_for(imported.exists, "the import")
    assert imported.read_bytes().startswith(lean)
    path.unlink()
    pi.beside.restore_all()
    assert_holds(imported, original)


@pytest.mark.soak
def test_a_session_of_version_2_that_pi_writes_anew_gets_all_back(
    pi: Pi, path: Path, original: bytes
) -> None:
    path.write_bytes(original.replace(b'"version":3', b'"version":2', 1))
    pi.beside.extract()
    pi.run("And now?", "--session", str(path))
    assert b'"version":3' in path.read_bytes().splitlines()[0]
    pi.beside.restore_all()
    assert path.read_bytes().startswith(original)


@pytest.mark.soak
def test_sessions_in_a_directory_of_their_own_get_all_back(
    programs: str, served: Model, model: Model, tmp_path: Path
) -> None:
    """`PI_CODING_AGENT_SESSION_DIR` works as `--session-dir`: sessions lie in that directory
    itself.
    """
    beside = pi_program.home(tmp_path / "flat", tmp_path / "work", served)
    beside.env["PI_CODING_AGENT_SESSION_DIR"] = str(beside.source)
    pi = Pi(beside, pi_program.newest(programs))
    path = pi_program.three_turns(pi)
    assert path.parent == beside.source
    original = path.read_bytes()
    beside.extract()
    lean = path.read_bytes()
    assert placeholders(lean) == 4
    pi.run("And now?", "--continue")
    assert "[[extracted-" in json.dumps(model.requests[-1]["messages"])
    grown = path.read_bytes()
    assert grown.startswith(lean)
    beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]
    [session] = beside.bsd("sessions")["sessions"]
    assert session["agent"] == "pi:."

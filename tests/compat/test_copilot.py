"""GitHub Copilot CLI resumes its sessions after bsd has extracted values, and others fork them.

Each session is resumed at the same place as the program left it, and after values have left it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compat import copilot
from tests.compat.copilot import Copilot, Json, differing
from tests.compat.messages_api import Model, asking
from tests.compat.needed import node_modules
from tests.transcripts.agents.sources.tree import without_restored

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def modules() -> Path:
    return node_modules("Copilot CLI", "copilot")


@pytest.fixture(scope="module")
def template(
    modules: Path, served: Model, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Copilot, str, Json]:
    """A home with a compacted session, its id, and the next request; only copies may be used."""
    top = tmp_path_factory.mktemp("copilot")
    served.thinks = True
    made = copilot.at(modules, top / "template", top / "work", served)
    session = copilot.long_session(made)
    made.run("/compact", session=session)
    # The summary repeats the prompts with the calls that they name, so the model makes them again.
    made.run("What now?", session=session)
    made.run("Thank you.", session=session)
    untouched = replace(made, beside=made.beside.copy_to(top / "untouched"))
    return made, session, untouched.request(session)


@pytest.fixture
def program(template: tuple[Copilot, str, Json], tmp_path: Path, model: Model) -> Copilot:
    model.thinks = True
    made = template[0]
    return replace(made, beside=made.beside.copy_to(tmp_path / "copilot"))


@pytest.fixture
def session(template: tuple[Copilot, str, Json]) -> str:
    return template[1]


@pytest.fixture
def request_before(template: tuple[Copilot, str, Json]) -> Json:
    return template[2]


def test_a_request_is_the_same_without_the_values_that_are_never_sent(
    program: Copilot, session: str, request_before: Json
) -> None:
    path = program.path(session)
    before = path.read_bytes()
    program.beside.bsd("config", "set", "scope", "display")
    program.beside.extract()
    lean = path.read_bytes()
    assert len(lean) < len(before) * 0.6
    assert program.request(session) == request_before
    assert path.read_bytes().startswith(lean), "the program only appends"
    program.beside.restore_all()
    assert without_restored(path.read_bytes()).startswith(before)


def test_only_placeholders_differ_in_a_request_and_all_comes_back(
    program: Copilot, session: str, request_before: Json
) -> None:
    path = program.path(session)
    before = path.read_bytes()
    program.beside.extract()
    lean = path.read_bytes()
    request = program.request(session)
    changed = differing(request_before, request)
    assert len(changed) > 3
    assert all(str(now).startswith("[[extracted-") for _, _, now in changed), changed
    assert not program.model.refused
    assert path.read_bytes().startswith(lean), "the program only appends"
    program.beside.restore_all()
    assert path.read_bytes().startswith(before)
    assert program.request(session)["messages"][:-3] == request_before["messages"][:-1]


def test_its_model_gets_the_text_in_the_same_turn(program: Copilot, session: str) -> None:
    path = program.path(session)
    before = path.read_bytes()
    program.beside.extract()
    lean = path.read_bytes()
    entry, text = last_result(before, lean)
    command, *words = program.beside.bsd_command("mcp", "--tools", "sessions")
    servers = {"mcpServers": {"bsd": {"command": command, "args": words}}}
    shell = program.beside.bsd_command("restore_remote", "--entry", entry, "--json")
    prompt = asking(
        "What was it?",
        ("bsd-restore_remote", {"entry": entry, "inline": True}),
        ("bash", {"command": " ".join(shell), "description": "Restore"}),
    )
    program.run(prompt, "--additional-mcp-config", json.dumps(servers), session=session)
    over_mcp, in_shell = program.model.results()[-2:]
    for given in (over_mcp, in_shell):
        answer, end = json.JSONDecoder().raw_decode(given)
        assert text in given[end:] or text in answer["texts"].values()
        assert answer["session"] == f"copilot:{session}/events"
        assert answer["inline"] == "not in this program"
    assert path.read_bytes().startswith(lean), "nothing of it was changed"
    program.beside.restore_all()
    assert path.read_bytes().startswith(before)


def last_result(before: bytes, lean: bytes) -> tuple[str, str]:
    """Return the last extracted result: its entry, and its text."""
    for was, now in zip(reversed(before.splitlines()), reversed(lean.splitlines()), strict=True):
        entry = json.loads(now)
        if "data.result.content" in entry.get("_extracted", {}).get("keys", ()):
            text = json.loads(was)["data"]["result"]["content"]
            assert isinstance(text, str)
            return entry["id"], text
    raise AssertionError("no result is away")


@pytest.mark.soak
def test_forks_made_before_and_after_an_extraction_come_back_too(
    program: Copilot, session: str, request_before: Json
) -> None:
    path = program.path(session)
    before = path.read_bytes()
    early = program.fork(session)
    whole = [program.path(early).read_bytes(), before]
    program.beside.extract()
    late = program.fork(session)
    assert path.read_bytes().count(b"_extracted") == (
        program.path(late).read_bytes().count(b"_extracted")
    ), "forks keep markers"
    changed = differing(request_before["messages"], program.request(late)["messages"])
    assert changed
    assert all(str(now).startswith("[[extracted-") for _, _, now in changed), changed
    program.beside.restore_all()
    assert program.path(early).read_bytes() == whole[0]
    assert path.read_bytes() == before
    assert b"[[extracted-" not in program.path(late).read_bytes()
    assert program.request(late)["messages"][:-3] == request_before["messages"][:-1]


@pytest.mark.soak
def test_a_session_of_600_mb_becomes_small_resumes_and_comes_back(
    program: Copilot, session: str
) -> None:
    path = program.path(session)
    content = path.read_bytes()
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in copilot.enlarged(content, 600_000_000):
            digest.update(piece)
            file.write(piece)
    size = path.stat().st_size
    program.beside.extract()
    lean = path.stat().st_size
    assert lean < size * 0.4
    program.run("Go on.", session=session)
    assert len(program.model.requests[-1]["messages"]) > 5
    assert path.stat().st_size < lean + 10_000_000
    program.beside.restore_all()
    with path.open("rb") as file:
        again = hashlib.sha256()
        left = size
        while left:
            block = file.read(min(left, 1 << 20))
            again.update(block)
            left -= len(block)
    assert again.digest() == digest.digest()

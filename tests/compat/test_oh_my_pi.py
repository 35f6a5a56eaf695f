"""oh-my-pi continues sessions with extracted values, and its copies get the values back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compat.beside import placeholders
from tests.compat.messages_api import Model, asking
from tests.compat.oh_my_pi import OhMyPi
from tests.compat.requests import extracted_in
from tests.compat.test_own_session import a_tool_result, parted, server

pytestmark = pytest.mark.compat

# Members of a request: places that depend on sizes, and the id of the session.
_BESIDE = frozenset(("cache_control", "metadata"))
# A call that ends when the tools over MCP are there: oh-my-pi does not wait for them.
_LOGGED = "until grep -qs 'MCP prompt commands refreshed' ~/.omp/logs/*.log; do sleep 0.1; done"
CONNECTED = ("bash", {"command": f'timeout 60 sh -c "{_LOGGED}"'})


@pytest.fixture(scope="module")
def template(served: Model, tmp_path_factory: pytest.TempPathFactory) -> tuple[OhMyPi, str]:
    """A home of oh-my-pi with a session, and the session's path; for copies."""
    top = tmp_path_factory.mktemp("omp")
    served.thinks = False
    omp = OhMyPi.at(top / "template", top / "work", served)
    return omp, str(omp.one_turn().relative_to(omp.beside.top))


@pytest.fixture
def omp(template: tuple[OhMyPi, str], tmp_path: Path) -> OhMyPi:
    return template[0].copy_to(tmp_path / "omp")


@pytest.fixture
def path(omp: OhMyPi, template: tuple[OhMyPi, str]) -> Path:
    """The session's file, from which no value was extracted yet."""
    return omp.beside.top / template[1]


def resumed(omp: OhMyPi, path: Path, model: Model) -> Any:
    """Continue the session as it is now; return the request. The file is as before afterwards."""
    content = path.read_bytes()
    model.requests.clear()
    omp.run("And now?", "--continue")
    assert path.read_bytes().startswith(content)
    path.write_bytes(content)
    [request] = model.requests
    return without_cache(request)


def without_cache(request: Any) -> Any:
    """Return a request without its session, and without the places up to which it is cached."""
    if isinstance(request, dict):
        return {k: without_cache(v) for k, v in request.items() if k not in _BESIDE}
    return [*map(without_cache, request)] if isinstance(request, list) else request


def test_it_sends_the_same_without_what_is_never_sent_and_forks_get_all_back(
    omp: OhMyPi, path: Path, model: Model
) -> None:
    original = path.read_bytes()
    before = resumed(omp, path, model)
    omp.beside.bsd("config", "set", "scope", "display")
    omp.beside.extract()
    shown = placeholders(path.read_bytes())
    assert shown > 0
    assert resumed(omp, path, model) == before
    omp.beside.bsd("config", "set", "scope", "all")
    omp.beside.extract()
    lean = path.read_bytes()
    assert lean.splitlines()[0] == original.splitlines()[0]
    files = omp.beside.files()
    omp.run("And now?", "--fork", str(path))
    after = without_cache(model.requests[-1])
    fork = omp.beside.the_new_file(files)
    assert placeholders(fork.read_bytes()) == placeholders(lean)
    assert path.read_bytes() == lean
    assert extracted_in(before, after) == placeholders(lean) - shown > 0
    assert not model.refused
    omp.beside.restore_all()
    assert path.read_bytes() == original
    lines = fork.read_bytes().splitlines()
    assert [line for line in original.splitlines()[2:] if line not in lines] == []


@pytest.mark.soak
def test_its_model_gets_a_text_back_in_its_own_session(
    omp: OhMyPi, path: Path, model: Model
) -> None:
    original = path.read_bytes()
    omp.beside.extract()
    lean = path.read_bytes()
    entry, text = a_tool_result(original, lean)
    servers = {"mcpServers": {"bsd": server(omp.beside.root)}}
    (omp.beside.source.parent / "mcp.json").write_text(json.dumps(servers))
    given_to = {"entry": entry, "inline": True}
    device = {"path": "xd://mcp__bsd_restore_remote", "content": json.dumps(given_to)}
    omp.run(asking("What was it?", CONNECTED, ("write", device)), "--resume", str(path))
    answer, given = parted(model.results()[-1])
    assert given.strip() == text
    assert answer["session"].endswith(f"/{path.stem}")
    assert answer["inline"] == "not in this program"
    grown = path.read_bytes()
    assert grown.startswith(lean), "nothing of it was changed"
    omp.beside.restore_all()
    assert path.read_bytes() == original + grown[len(lean) :]


@pytest.mark.soak
def test_thinking_stays_since_it_would_be_sent_without_its_signature(
    omp: OhMyPi, path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thought(number: int, text: str) -> list[dict[str, Any]]:
        """Think without repetition, which oh-my-pi takes for a loop."""
        thinking, said = Model._thought(model, number, text)
        words = (str(pow(number + 7, power, 99_991)) for power in range(150))
        thinking["thinking"] = model._thoughts[thinking["signature"]] = " ".join(words)
        return [thinking, said]

    model.thinks = True
    monkeypatch.setattr(model, "_thought", thought)
    omp.run(asking("Count.", ("bash", {"command": "seq 9"})), "--continue")
    omp.run("Thank you.", "--continue")
    original = path.read_bytes()
    thoughts = original.count(b'"thinkingSignature"')
    omp.beside.extract()
    assert path.read_bytes().count(b'"thinkingSignature"') == thoughts > 1
    resumed(omp, path, model)
    assert not model.refused
    omp.beside.restore_all()
    assert path.read_bytes() == original

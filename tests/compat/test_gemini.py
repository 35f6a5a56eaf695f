"""Gemini CLI continues sessions with extracted values, and bsd finds the values in its copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat import gemini_program
from tests.compat.gemini_api import serving_gemini
from tests.compat.gemini_program import GeminiCli
from tests.compat.messages_api import asking
from tests.compat.needed import node_modules
from tests.compat.test_own_session import parted, server
from tests.transcripts.agents.sources.tree import away, without_restored

pytestmark = pytest.mark.compat

_PLACEHOLDER = "[[extracted-"


@pytest.fixture(scope="module")
def template(programs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeminiCli]:
    """A home of Gemini CLI with a session of three turns; only copies of it may be used."""
    top = tmp_path_factory.mktemp("gemini")
    command = gemini_program.command(programs, node_modules("Gemini CLI", "gemini"))
    with serving_gemini() as model:
        home = gemini_program.home(top / "template", top / "work", model)
        gemini = GeminiCli(home, command, model)
        gemini_program.three_turns(gemini)
        yield gemini


@pytest.fixture
def gemini(template: GeminiCli, tmp_path: Path) -> GeminiCli:
    return template.copy_to(tmp_path / "gemini")


@pytest.fixture(scope="module")
def whole(template: GeminiCli, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What Gemini CLI sends when it resumes the session from which no value was extracted."""
    return template.copy_to(tmp_path_factory.mktemp("whole")).resume("And now?")


def test_superseded_messages_leave_and_the_request_is_the_same(
    gemini: GeminiCli, whole: list[Any]
) -> None:
    before = gemini.session.read_bytes()
    gemini.beside.bsd("config", "set", "scope", "display")
    gemini.beside.extract()
    lean = gemini.session.read_bytes()
    assert away(before, lean) > 10
    assert len(lean) < len(before) / 2
    assert gemini.resume("And now?") == whole
    assert gemini.session.read_bytes().startswith(lean)
    assert gemini.beside.bsd("verify")["clean"]
    gemini.beside.restore_all()
    assert without_restored(gemini.session.read_bytes()).startswith(before)


@pytest.mark.soak
def test_only_placeholders_differ_and_copies_of_them_are_found(
    gemini: GeminiCli, whole: list[Any]
) -> None:
    before = gemini.session.read_bytes()
    gemini.beside.extract()
    lean = gemini.session.read_bytes()
    assert away(before, lean) > 20
    sent = gemini.resume("And now?")
    stand_ins = list(map(str, differences(whole, sent)))
    assert stand_ins
    assert all(one.startswith(_PLACEHOLDER) for one in stand_ins)
    assert gemini.session.read_bytes().startswith(lean)
    # Gemini CLI has written the placeholders anew, into its copy of the whole history.
    copied = gemini.session.read_bytes()[len(lean) :]
    assert copied.count(_PLACEHOLDER.encode()) >= len(stand_ins)
    assert gemini.beside.bsd("verify")["clean"]
    gemini.beside.rest()
    name = stand_ins[0].removeprefix(_PLACEHOLDER).removesuffix("]]")
    done = gemini.beside.bsd("restore", f"gemini:work/{gemini.session.stem}", name)
    assert done["entry_id"] == name
    assert stand_ins[0].encode() not in gemini.session.read_bytes(), "nor in any copy"
    gemini.beside.restore_all()
    assert without_restored(gemini.session.read_bytes()).startswith(before)
    assert _PLACEHOLDER.encode() not in gemini.session.read_bytes()
    texts = set(strings(gemini.resume("Go on.")))
    assert set(strings(whole)) <= texts


def test_the_model_gets_a_value_back_in_its_own_session(gemini: GeminiCli) -> None:
    before = gemini.session.read_bytes()
    gemini.beside.extract()
    lean = gemini.session.read_bytes()
    entry, text = a_result(before, lean)
    settings = gemini.beside.source.parent / "settings.json"
    servers = {"mcpServers": {"bsd": server(gemini.beside.root)}}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | servers))
    sent = gemini.resume(
        asking("What was it?", ("mcp_bsd_restore_remote", {"entry": entry, "inline": True}))
    )
    [answer] = [one for one in strings(sent) if '"restored"' in one]
    restored, given = parted(answer.removeprefix("<untrusted_context>\n"))
    assert text in given
    assert not restored["restored"]
    assert restored["session"] == f"gemini:work/{gemini.session.stem}"
    assert gemini.session.read_bytes().startswith(lean)


def strings(tree: Any) -> Iterator[str]:
    """Yield all strings in a document."""
    if isinstance(tree, str):
        yield tree
    for one in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from strings(one)


def differences(one: Any, other: Any) -> Iterator[Any]:
    """Yield the values in `other` that differ from those in `one`."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from differences(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for pair in zip(one, other, strict=True):
            yield from differences(*pair)
    elif one != other:
        yield other


def a_result(before: bytes, lean: bytes) -> tuple[str, str]:
    """Return an extracted result of a message: the name in its placeholder, and its text."""
    for was, now in zip(before.splitlines(), lean.splitlines(), strict=True):
        pair = [json.loads(line).get("toolCalls") for line in (was, now)]
        if all(pair):
            results = (calls[0]["result"][0]["functionResponse"] for calls in pair)
            text, stand_in = (result["response"]["output"] for result in results)
            if stand_in.startswith(_PLACEHOLDER):
                return stand_in.removeprefix(_PLACEHOLDER).removesuffix("]]"), text
    raise AssertionError("no result is away")

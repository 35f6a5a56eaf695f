"""Every verb is reached where it says, and every door tells of it what the verb does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from bsd.doors.agent.tools import TOOLS
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.main import bsd
from bsd.doors.http.app import create_app
from bsd.doors.http.desk import Desk
from bsd.doors.models import answer_model
from bsd.foundation.answers import told_fields
from bsd.foundation.layout import Layout
from bsd.foundation.pruning_config import ConfigService
from bsd.verbs.names import NAMES
from bsd.verbs.verb import Verb, all_verbs, arguments_of
from tests.doors.http.fake_daemon import FakeDaemon

VERBS = all_verbs()
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the API says of itself."""
    root = tmp_path_factory.mktemp("root")
    config = ConfigService(root / "config.json", create=False)
    app = create_app(FakeDaemon(), config, Desk(Layout(root), config))
    described: dict[str, Any] = app.openapi()
    return described


def test_each_has_a_module_and_each_module_of_a_verb_is_named() -> None:
    room = Path(sys.modules["bsd.verbs"].__file__ or "").parent
    defining = {path.stem for path in room.glob("*.py") if "= Verb(\n" in path.read_text()}
    assert defining == set(NAMES)


@every_verb
def test_it_does_one_thing_and_can_be_reached(verb: Verb[Any, Any]) -> None:
    ways = [way for way in (verb.plan, verb.query, verb.act, verb.ask) if way is not None]
    assert len(ways) == 1
    assert verb.changes or verb.plan is None
    name = next(name for name, one in VERBS.items() if one is verb)
    assert verb.route or verb.tools or NAMES[name].command
    assert NAMES[name].locks == (verb.changes and NAMES[name].command is not None)


@every_verb
def test_http_takes_its_arguments_and_tells_its_answer(
    verb: Verb[Any, Any], document: dict[str, Any]
) -> None:
    if verb.route is None:
        return
    operation = document["paths"][verb.route.path][verb.route.method.lower()]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": f"#/components/schemas/{verb.answer.__name__}"}
    told = document["components"]["schemas"][verb.answer.__name__]
    kind: Any = verb.answer
    fields = {said.name or one.name: said for one, said in told_fields(kind)}
    assert list(told["properties"]) == list(fields)
    always = [name for name, said in fields.items() if not said.omit]
    assert told["required"] == always, "what may be left out, and nothing else, need not be there"
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    given = {one["name"] for one in operation["parameters"]}
    if verb.ask is None:
        given -= {"agent", "session"}
    given |= set(body.get("schema", {}).get("properties", {}))
    known = {(said.names or {}).get("http", name) for name, (_, said) in _arguments(verb)}
    assert given == known


@every_verb
def test_a_command_takes_its_arguments(verb: Verb[Any, Any]) -> None:
    name = next(name for name, one in VERBS.items() if one is verb)
    if NAMES[name].command is None:
        return
    command = bsd.get_command(click.Context(bsd), NAMES[name].command or "")
    assert command is not None
    taken = {one.name for one in command.params if one.expose_value}
    assert taken == {"session", *(argument for argument, _ in _arguments(verb))}
    assert COMMANDS[NAMES[name].command or ""].locks == verb.changes


@every_verb
def test_tools_take_its_arguments_and_tell_its_answer(verb: Verb[Any, Any]) -> None:
    for told in verb.tools:
        tool = TOOLS[told.name]
        assert tool.changes == verb.changes
        taken = set(tool.schema()["properties"])
        known = {
            (said.names or {}).get(told.name, name)
            for name, (_, said) in _arguments(verb)
            if not said.query
        }
        assert {"session", *known} <= taken
        schema = tool.output_schema()
        if schema is not None:
            assert set(schema["properties"]) == set(answer_model(verb.answer).model_fields)


def test_what_an_answer_says_is_what_its_model_says() -> None:
    answer = VERBS["restore"].answer(entry_id="e1", restored=True)
    shown = answer.as_json()
    assert shown == {"restored": True, "entry_id": "e1", "keys_restored": [], "sizes_bytes": {}}
    assert set(answer_model(VERBS["restore"].answer).model_json_schema()["required"]) == set(shown)


def test_verbs_load_neither_pydantic_nor_http_nor_click() -> None:
    program = "import sys; from bsd.verbs.verb import all_verbs; all_verbs(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"pydantic", "fastapi", "starlette", "click", "mcp", "uvicorn", "http"}


def _arguments(verb: Verb[Any, Any]) -> list[tuple[str, Any]]:
    return list(arguments_of(verb.arguments).items())

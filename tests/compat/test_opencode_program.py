"""The real opencode: bsd reads the sessions in its database, and changes nothing in its home."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.compat.beside import Beside
from tests.compat.messages_api import Model, asking
from tests.compat.needed import node_modules

pytestmark = pytest.mark.compat

SESSIONS = ".local/share/opencode"
NOWHERE = "http://127.0.0.1:9"


def home_of(top: Path, model: Model) -> Beside:
    """Return an empty home whose opencode asks a model on loopback, and nothing else."""
    known = {"name": "Mock", "limit": {"context": 200_000, "output": 8000}}
    known["cost"] = {"input": 3, "output": 15}
    options = {"baseURL": f"{model.url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/anthropic", "options": options, "models": {"mock-1": known}}
    settings: dict[str, Any] = {"model": "mock/mock-1", "small_model": "mock/mock-1"}
    settings |= {"provider": {"mock": provider}, "permission": {"*": "allow"}}
    quiet = ("AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH")
    env = {f"OPENCODE_DISABLE_{what}": "1" for what in quiet}
    env |= {"OPENCODE_CONFIG_CONTENT": json.dumps(settings), "npm_config_registry": NOWHERE}
    work = top / "work"
    return Beside(top / "home", "opencode", SESSIONS, work, env | {"PWD": str(work)})


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("opencode.db*")}


def test_its_sessions_are_read_and_never_written(tmp_path: Path, served: Model) -> None:
    served.thinks = False
    program = node_modules("opencode", "opencode") / "opencode-linux-x64" / "bin" / "opencode"
    beside = home_of(tmp_path, served)
    missing, page = (str(beside.work / name) for name in ("missing.txt", "page.txt"))
    task = asking("Look.", ("read", {"filePath": missing}))
    prompt = asking(
        "Count.",
        ("bash", {"command": "seq 500", "description": "count"}),
        ("write", {"filePath": page, "content": "A page."}),
        ("task", {"description": "look", "prompt": task, "subagent_type": "general"}),
    )
    # It would quote a word with a blank in it.
    beside.run(str(program), "run", "--title", "A count", *prompt.split(" "))
    database = beside.source / "opencode.db"
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT id, parent_id, tokens_input, tokens_output FROM session ORDER BY id"
        rows = connection.execute(query).fetchall()
        messages = connection.execute("SELECT id FROM message ORDER BY time_created").fetchall()
        parts = connection.execute("SELECT id FROM part").fetchall()
    [(own, sent, made)] = [(row[0], *row[2:]) for row in rows if row[1] is None]
    [part_of] = [row[0] for row in rows if row[1] is not None]
    before = contents(beside.source)

    listed = {row["session"]: row for row in beside.bsd("sessions")["sessions"]}
    assert {name.rpartition("/")[2] for name in listed} == {own, part_of}
    name = next(name for name in listed if name.endswith(own))
    assert listed[name]["title"] == "A count"
    assert listed[name]["resume"] == f"cd {beside.work} && opencode --session {own}"
    entries = beside.bsd("show", name)["entries"]
    shown = [entry["id"] for entry in entries]
    others = beside.bsd("show", next(one for one in listed if one != name))["entries"]
    shown += [entry["id"] for entry in others]
    assert set(shown) == {own, part_of, *(each[0] for each in messages), *(i[0] for i in parts)}
    assert len(shown) == len(set(shown))
    found = beside.bsd("summary", name)
    assert set(found["summary"]["tools_used"]) == {"bash", "write", "task"}
    assert found["summary"]["files_created"] == [page]
    assert any("event" in files["what"] for files in found["directory"])
    assert sum(entry.get("is_error") is True for entry in entries) == 0
    assert (sent, made) == (40, 20)
    whole = tmp_path / "whole.jsonl"
    beside.bsd("restore-all", name, "--to", str(whole))
    lines = [json.loads(line) for line in whole.read_bytes().splitlines()]
    assert [line["id"] for line in lines] == [entry["id"] for entry in entries]
    assert beside.bsd("archive", "keep", name)
    assert contents(beside.source) == before

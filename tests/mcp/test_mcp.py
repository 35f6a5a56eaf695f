"""`bsd mcp` with a real client, the SDK's own over stdio, without a daemon and with one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import pytest

from bsd.actions.context import ActionContext
from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import MemorySettings, SourceSettings
from bsd.mcp.scope import Scope
from bsd.mcp.server import make_server
from bsd.mcp.tools import TOOLS
from bsd.memory import actions as memory_actions
from bsd.memory.memory import Memory
from bsd.memory.new_fact import NewFact
from bsd.transcripts.agents.programs import layout_of
from tests import forked
from tests.actions.performed import Caller
from tests.daemon.running import configure, running
from tests.mcp.answers import call_until_answered, document_of
from tests.openclaw_tree import add_session, set_idle, set_status
from tests.pictures import PNG
from tests.session_files import sample
from tests.transcripts.agents.sources import CLAUDE_CODE
from tests.transcripts.agents.sources.claude_code import claude_code_lines
from tests.transcripts.agents.sources.tree import Home
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:  # importing it takes a second, and each of the workers would import it
    from mcp.client import Client
    from mcp_types import CallToolResult

pytestmark = pytest.mark.daemon

OF_SESSIONS = list(TOOLS)  # tests/golden records the tools
OF_FACTS = [
    *("memory_store", "memory_recall", "memory_lookup", "memory_confirm", "memory_forget"),
    *("memory_checkpoint", "memory_prune"),
]


@dataclass
class House:
    """Two sessions of one agent, one of another; all of them have extracted values."""

    root: Path

    def path(self, name: str) -> Path:
        agent, _, session = name.partition("/")
        return self.root / "agents" / agent / "sessions" / f"{session}.jsonl"

    def away(self, name: str, role: str = "") -> list[str]:
        entries = map(json.loads, self.path(name).read_bytes().splitlines())
        away = [entry for entry in entries if "_extracted" in entry]
        return [one["id"] for one in away if not role or one["message"]["role"] == role]

    def rest(self) -> None:
        for path in self.root.glob("agents/*/sessions/*.jsonl"):
            set_idle(path)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    root = tmp_path_factory.mktemp("mcp") / "root"
    root.mkdir()
    for number, name in enumerate(("main/alpha", "main/beta", "other/gamma")):
        add_session(root, name, sample(6, number))
        set_status(root, name, "done")
    configure(root, retention="never")
    caller = Caller(layout=(layout := Layout(root)), config=ConfigService(layout.config_file))
    for name in ("main/alpha", "main/beta", "other/gamma"):
        assert caller.extract(SessionName.parse(name)).values
    house = House(root)
    house.rest()
    return house


def serve(
    house: House,
    work: Callable[[Client], Awaitable[None]],
    *options: str,
    program: str = "test",
    **env: str,
) -> None:
    """Let `work` use a server of its own, as a program with this name does."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp_types import Implementation

    async def run(errors: TextIO) -> None:
        command, *words = forked.command("--root", str(house.root), "mcp", *options)
        server = StdioServerParameters(
            command=command,
            args=words,
            env={**os.environ, **env},
        )
        with anyio.fail_after(DEADLINE_SECONDS):
            about = Implementation(name=program, version="1")
            async with Client(stdio_client(server, errlog=errors), client_info=about) as client:
                await work(client)

    with (house.root.parent / "errors").open("w+") as errors:
        anyio.run(run, errors)
        errors.seek(0)
        assert errors.read() == ""


def answer(result: CallToolResult, *, structured: bool = False) -> Any:
    """Return the text for a model; structured content only if there is no text."""
    assert not result.is_error, document_of(result)
    document = document_of(result)
    assert result.structured_content == (document if structured else None)
    return document


def error(result: CallToolResult) -> str:
    assert result.is_error
    return str(document_of(result)["error"])


def test_every_tool_without_a_daemon(house: House) -> None:
    async def work(client: Client) -> None:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [*OF_SESSIONS, *OF_FACTS]
        for tool in listed.tools:
            assert tool.description is not None
            assert len(tool.description) > 100
            assert "session" not in tool.input_schema.get("required", [])
            assert ("session" in tool.input_schema["properties"]) is (tool.name in OF_SESSIONS)
        await every_tool(client, house, "main/alpha")
        await what_is_wrong(client, house)
        await in_parallel(client, house)
        await the_memory(client)

    serve(house, work, "--tools", "all")


@pytest.mark.parametrize(
    ("which", "enabled", "stored", "names"),
    [
        (None, None, False, OF_SESSIONS),
        (None, None, True, [*OF_SESSIONS, *OF_FACTS]),
        (None, True, False, [*OF_SESSIONS, *OF_FACTS]),
        (None, False, True, OF_SESSIONS),
        ("sessions", True, True, OF_SESSIONS),
        ("memory", None, False, OF_FACTS),
        ("all", False, False, [*OF_SESSIONS, *OF_FACTS]),
    ],
)
def test_memory_tools_are_listed_if_a_memory_is_used(
    tmp_path: Path,
    which: str | None,
    enabled: bool | None,
    stored: bool,
    names: list[str],
) -> None:
    layout = Layout(tmp_path)
    if stored:
        with Memory(layout.facts_db) as memory:
            memory_actions.store(memory, NewFact("harbours have cranes"))
    context = ActionContext(layout=layout, config=ConfigService(layout.config_file))
    settings = MemorySettings(enabled=enabled)
    server = make_server(context, Scope(), settings, which, readonly=False)
    assert [tool.name for tool in asyncio.run(server.list_tools())] == names


def test_every_tool_beside_a_daemon_within_one_session(house: House, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            assert "session" not in tool.input_schema["properties"]
            assert tool.name in OF_SESSIONS
        await every_tool(client, house, "main/beta", names_it=False)
        other = {"session": "main/alpha", "action": "get_context"}
        assert "serve main/beta only" in error(
            await call_until_answered(client, "purge_control", other)
        )

    with running(house.root, tmp_path) as daemon:
        serve(house, work, "--session", "main/beta", "--tools", "sessions", **daemon.env)
        daemon.must_run()


def test_the_memory_alone_and_only_read_where_bsd_only_reads(house: House) -> None:
    with Memory(Layout(house.root).facts_db) as memory:
        fact = memory_actions.store(memory, NewFact("harbours have cranes"))

    async def work(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == OF_FACTS
        look = await call_until_answered(
            client, "purge_control", {"action": "get_context", "session": "beta"}
        )
        assert "there is no tool purge_control" in error(look)
        recalled = await call_until_answered(client, "memory_recall", {"query": "harbours"})
        (found,) = answer(recalled, structured=True)["results"]
        assert (found["id"], found["recall_count"]) == (fact.id, 0)
        forgotten = await call_until_answered(client, "memory_forget", {"memoryId": fact.id})
        assert "read-only" in error(forgotten)

    serve(house, work, "--tools", "memory", BRAINSURGEON_READONLY="true")
    with Memory(Layout(house.root).facts_db) as memory:
        assert memory_actions.get(memory, fact.id).recall_count == 0


async def the_memory(client: Client) -> None:
    async def call(tool: str, **arguments: Any) -> Any:
        called = await call_until_answered(client, f"memory_{tool}", arguments)
        return answer(called, structured=True)

    async def refused(tool: str, **arguments: Any) -> str:
        return error(await call_until_answered(client, f"memory_{tool}", arguments))

    stored = await call("store", text="We decided to use tabs", entity="style", key="indent")
    id_ = stored["fact"]["id"]
    assert stored["message"] == (
        'Stored: "We decided to use tabs" [entity: style] [decay: permanent]'
    )
    (recalled,) = (await call("recall", query="tabs or spaces"))["results"]
    assert (recalled["id"], recalled["recall_count"]) == (id_, 1)
    (looked_up,) = (await call("lookup", entity="STYLE", key="indent"))["results"]
    assert (looked_up["id"], looked_up["recall_count"]) == (id_, 2)
    assert (await call("confirm", memoryId=id_))["fact"]["confidence"] == 1.0
    saved = await call("checkpoint", action="save", intent="rename it", state="half done")
    restored = await call("checkpoint", action="restore")
    assert restored["checkpoint"]["id"] == saved["fact"]["id"]
    assert (await call("prune"))["by_class"]["checkpoint"] == 1
    assert (await call("forget", memoryId=id_))["fact"]["text"] == "We decided to use tabs"
    assert "there is no fact" in await refused("forget", memoryId=id_)
    assert "text parameter is required" in await refused("store", text=" ")
    assert "there is no decay class 'tea'" in await refused("store", text="x", decayClass="tea")


async def every_tool(client: Client, house: House, name: str, *, names_it: bool = True) -> None:
    named = {"session": name} if names_it else {}

    async def call(tool: str, **arguments: Any) -> Any:
        house.rest()
        called = await call_until_answered(client, tool, {**named, **arguments})
        return answer(called, structured=tool in {"search_extracted", "context"})

    first, second, third = results = house.away(name, "toolResult")[:3]
    context = await call("purge_control", action="get_context")
    assert context["session"] == name
    assert set(results) <= set(context["extracted_ids"])
    clock = Layout(house.root).clock_file
    clock.unlink(missing_ok=True)
    restored = await call("restore_remote", entry=first)
    seeds = {"restored", "entry_id", "keys_restored", "sizes_bytes"}
    assert set(restored) == seeds | {"inline", "texts"} | ({"session"} - set(named))
    assert (restored["restored"], restored["entry_id"]) == (True, first)
    assert (restored["inline"], set(restored["texts"])) == ("now", set(restored["keys_restored"]))
    assert clock.exists(), "retention will compare the clock with what it showed then"
    read = await call("read_extracted", entry=second)
    assert read["session"] == name
    assert all(text and "[[extracted-" not in text for text in read["texts"].values())
    assert second in house.away(name)
    assert (await call("restore", entry_id=second))["restored"] is True
    assert (await call("purge_control", action="restore", entry=third))["restored"] is True
    assert not set(results) & set(house.away(name))
    pinned = await call("purge_control", action="set_extractable", entry=first, value=False)
    assert (pinned["entry_id"], pinned["extractable"]) == (first, False)
    found = await call("search_extracted", query="the")
    assert found["results"]
    store = house.root / "extracted" / name.replace("/", "_")
    stored = json.loads((store / "index.json").read_bytes())["entries"]
    assert {one["entry_id"] for one in found["results"]} <= {one["entry_id"] for one in stored}
    listed = (await call("purge_control", action="get_context"))["entries"]
    (hash_,) = [one["hash"] for one in listed if one["id"] == second]
    distilled = await call("context", action="distill", targets=[[hash_, "all was well"]])
    assert distilled["success"] is True
    assert b"all was well" in house.path(name).read_bytes()


async def what_is_wrong(client: Client, house: House) -> None:
    async def problem(tool: str, **arguments: Any) -> str:
        return error(await call_until_answered(client, tool, arguments))

    assert await problem("restore", entry_id="e1") == "session parameter is required"
    assert await problem("restore", session="main/alpha") == "entry_id parameter is required"
    nowhere = await problem("restore", session="main/alpha", entry_id="nowhere")
    assert nowhere == "Entry not found in session"
    assert await problem("restore", session="main/none", entry_id="e1")
    assert "not a valid name" in await problem("restore", session="../alpha", entry_id="e1")
    assert "Valid actions: get_context" in await problem(
        "purge_control", session="main/alpha", action="destroy"
    )
    assert "not a parameter" in await problem(
        "restore", session="main/alpha", entry_id="e", key="x"
    )
    assert "there is no tool" in await problem("destroy")
    targets = [{"start": "nowhere at all", "end": "nor here", "replacement": ""}]
    refused = await call_until_answered(
        client, "context", {"session": "main/alpha", "action": "replace", "targets": targets}
    )
    assert refused.is_error
    assert document_of(refused)["success"] is False
    set_status(house.root, "main/alpha", "running")
    here = {"session": "main/alpha"}
    entry = house.away("main/alpha")[0]
    for tool, named in (("restore", {"entry_id": entry}), ("read_extracted", {"entry": entry})):
        given = answer(await call_until_answered(client, tool, {**here, **named}))
        assert all("[[extracted-" not in one for one in given["texts"].values())
    pin = {"action": "set_extractable", "entry": entry, "value": False}
    busy = await call_until_answered(client, "purge_control", {**here, **pin})
    set_status(house.root, "main/alpha", "done")
    assert entry in house.away("main/alpha")
    assert "is in use" in error(busy)
    assert document_of(busy)["busy"] is True


async def in_parallel(client: Client, house: House) -> None:
    house.rest()
    calls = [("other/gamma", one) for one in house.away("other/gamma")[:2]]
    calls.append(("main/beta", house.away("main/beta", "assistant")[0]))

    async def restore(session: str, entry: str) -> None:
        asked = {"session": session, "entry_id": entry}
        # An answer that comes before the change has the text; the same call gets the next answer.
        while not answer(await call_until_answered(client, "restore", asked))["restored"]:
            pass

    async with anyio.create_task_group() as group:
        for session, entry in calls:
            group.start_soon(restore, session, entry)
    assert not {entry for _, entry in calls} & {
        *house.away("main/beta"),
        *house.away("other/gamma"),
    }


def test_nothing_but_the_protocol_and_a_clean_end(house: House) -> None:
    greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": greeting},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "purge_control", "arguments": LOOK}},
    ]
    argv = [sys.executable, "-m", "bsd", "--root", str(house.root), "mcp", "--agent", "main"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        process.stdin.write(b"\n".join([*lines, b"this is no message", b""]))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait(DEADLINE_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert "placeholder" in answers[0]["result"]["instructions"]
    assert answers[1]["id"] == 2
    (block,) = answers[1]["result"]["content"]
    assert json.loads(block["text"])["session"] == "main/beta"
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())


CLIENT = {"name": "test", "version": "1"}
LOOK = {"action": "get_context", "session": "beta"}


@pytest.mark.parametrize(
    "options", [("--session", "nonsense"), ("--agent", ".."), ("--agent", "a", "--session", "b/c")]
)
def test_wrong_options(house: House, options: tuple[str, ...]) -> None:
    from bsd.cli.main import run

    assert run(["--root", str(house.root), "mcp", *options]) == 2


def test_a_program_need_not_name_its_own_session(house: House, tmp_path: Path) -> None:
    """This process is the program, and reports its session as Claude Code does."""
    home = Home.of(CLAUDE_CODE, tmp_path, claude_code_lines(4))
    config = tmp_path / "bsd" / "bsd.toml"
    config.parent.mkdir()
    config.write_text(f'[[sources]]\nkind = "claude-code"\npath = "{home.source}"\n')
    layout = layout_of(house.root, [SourceSettings(kind="claude-code", path=home.source)])
    settings = {"trigger_types": ["tool_result"], "keep_recent": 0}
    caller = Caller(layout=layout, config=ConfigService(layout.config_file))
    assert caller.extract(home.name, overrides=settings).values
    running = home.source.parent / "sessions" / f"{os.getpid()}.json"
    running.parent.mkdir()
    said = {"pid": os.getpid(), "sessionId": home.name.session, "status": "busy"}
    running.write_text(json.dumps(said))
    before = home.path.read_bytes()

    async def work(client: Client) -> None:
        listing = answer(
            await call_until_answered(client, "purge_control", {"action": "get_context"})
        )
        assert listing["session"] == str(home.name)
        pictures = 0
        for entry in listing["extracted_ids"]:
            result = await call_until_answered(
                client, "restore_remote", {"entry": entry, "inline": True}
            )
            assert not result.is_error
            document = answer(result)
            assert document["session"] == str(home.name)
            assert document["inline"] == "not in this program"
            assert document["texts"]
            for one in result.content:
                if one.type == "image":
                    assert (one.mime_type, one.data) == ("image/png", PNG)
                    pictures += 1
        assert pictures

    serve(house, work, XDG_CONFIG_HOME=str(tmp_path))
    assert home.path.read_bytes() == before

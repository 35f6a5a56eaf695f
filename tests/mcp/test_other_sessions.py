"""A writer in one session gets no content of another, through any interface or wording."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bsd.core.config_file import ConfigService
from bsd.core.layout import Layout, SessionName
from bsd.mcp.inband import InBand
from bsd.sessions.idle import RetryBudget
from tests import forked
from tests.actions.performed import Caller
from tests.commands import run_here
from tests.mcp.answers import call_until_answered
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import Clock, jsonl, make_caller
from tests.sessions.test_copies import FORK as FORKED
from tests.sessions.test_copies import ROLLOUT, claude_code_fork, codex_fork
from tests.transcripts.agents.sources import CLAUDE_CODE, CODEX, PI
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, raw
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:  # importing it takes a second, and each of the workers would import it
    from mcp.client import Client

Json = dict[str, Any]
SECRET = "the words of another agent's session"
LONG = f"{SECRET}, which are many; " * 30
ORIGIN, SPY, FORK, COPY = "main/origin", "other/spy", "main/fork", "main/copy"
# One entry for each role: other sessions know their answers and times as well.
AWAY = {"aaaaaaa1": "user", "aaaaaaa2": "assistant", "aaaaaaa3": "toolResult"}


def header(name: str, **more: Any) -> Json:
    session = name.partition("/")[2]
    time = "2026-03-01T00:00:00.000Z"
    return {"type": "session", "version": 3, "id": session, "timestamp": time, "cwd": "/p", **more}


def entry(entry_id: str, parent: str | None, role: str, words: str, minute: int = 0) -> Json:
    message: Json = {"role": role, "content": [{"type": "text", "text": words}]}
    if role == "assistant":
        message |= {"api": "openai-completions", "model": "m", "stopReason": "stop"}
    if role == "toolResult":
        message |= {"toolCallId": "call_1", "toolName": "read", "isError": False}
    time = f"2026-03-01T00:{minute:02}:00.000Z"
    about = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": time}
    return {**about, "message": message}


@dataclass
class Root:
    """Sessions of two agents; values of one of them were extracted."""

    path: Path

    @property
    def layout(self) -> Layout:
        return Layout(self.path)

    def file(self, name: str) -> Path:
        agent, _, session = name.partition("/")
        return self.path / "agents" / agent / "sessions" / f"{session}.jsonl"

    def entries(self, name: str) -> list[Json]:
        return [json.loads(line) for line in self.file(name).read_bytes().splitlines()]

    def rest(self) -> None:
        for path in self.path.glob("agents/*/sessions/*.jsonl"):
            set_idle(path)

    def add(self, name: str, lines: list[Json], **more: Any) -> Path:
        return add_session(self.path, name, jsonl(header(name, **more), *lines))

    def bsd(self, *arguments: str) -> str:
        """Return all output of a command."""
        self.rest()
        ended = run_here(self.path, *arguments)
        return ended.out + ended.err


@pytest.fixture
def root(tmp_path: Path) -> Root:
    root = Root(tmp_path / "root")
    lines = [entry(one, None, role, LONG) for one, role in AWAY.items()]
    lines += [entry(f"aaaaaa{n}", None, "assistant", "done") for n in range(10, 15)]
    root.add(ORIGIN, lines)
    config = ConfigService(root.layout.config_file)
    caller = Caller(layout=root.layout, config=config, budget=RetryBudget(wait=0.0))
    settings = {"trigger_types": ["user", "assistant", "tool_result"]}
    assert caller.extract(SessionName.parse(ORIGIN), overrides=settings).values == len(AWAY)
    return root


def mentions(_: Root) -> list[Json]:
    """Return texts that a person types, a model quotes and a tool prints."""
    return [
        entry(f"bbbbbbb{number}", None, role, f"[[extracted-{one}]]", minute=number)
        for number, (one, role) in enumerate(AWAY.items())
    ]


def with_markers(root: Root) -> list[Json]:
    """Return the same lines, with the markers of the entries that they mention."""
    markers = [one["_extracted"] for one in root.entries(ORIGIN) if "_extracted" in one]
    return [
        {**line, "_extracted": marker} for line, marker in zip(mentions(root), markers, strict=True)
    ]


def markers_alone(root: Root) -> list[Json]:
    """Markers in lines without other text, or in lines that call themselves as their
    placeholders do.
    """
    marked = [one for one in root.entries(ORIGIN) if "_extracted" in one]
    said = [
        entry(f"bbbbbbb{number}", None, one["message"]["role"], f"[[extracted-bbbbbbb{number}]]")
        for number, one in enumerate(marked)
    ]
    for line, one in zip(said, marked, strict=True):
        line["_extracted"] = one["_extracted"]
    silent = entry("ccccccc1", None, "user", "please")
    return [*said, {**silent, "_extracted": marked[0]["_extracted"]}]


SAID = [mentions, with_markers, markers_alone]
Say = Callable[[Root], list[Json]]


def own_ids(lines: list[Json]) -> list[str]:
    return [*AWAY, *(one["id"] for one in lines)]


@pytest.mark.parametrize("say", SAID)
def test_no_command_gives_it(root: Root, say: Say) -> None:
    said = say(root)
    path = root.add(SPY, said)
    before = path.read_bytes()
    heard = [
        root.bsd("verify", "--repair", "--json"),
        root.bsd("extract", SPY, "--json"),
        root.bsd("restore-all", SPY, "--yes", "--keep-enabled"),
        root.bsd("show", SPY, "--full", "--json"),
        root.bsd("show", SPY),
        root.bsd("summary", SPY),
    ]
    heard += [root.bsd("restore", SPY, one, "--json") for one in own_ids(said)]
    heard.append(root.bsd("restore_remote", "--session", SPY, "--entry", said[0]["id"]))
    assert not [one for one in heard if SECRET in one]
    assert path.read_bytes() == before
    copy = root.path / "copy.jsonl"
    root.bsd("restore-all", SPY, "--to", str(copy))
    assert copy.read_bytes() == before


@pytest.mark.parametrize("say", SAID)
def test_it_is_not_handed_down_when_its_session_goes_for_good(root: Root, say: Say) -> None:
    root.add(SPY, say(root))
    root.bsd("delete", ORIGIN, "--permanent", "--yes")
    assert not root.file(ORIGIN).exists()
    left = [path for path in root.path.rglob("*") if path.is_file() and "_tool_" in path.name]
    assert [path for path in left if SECRET in path.read_text()] == []
    assert not root.layout.store_dir(SessionName.parse(SPY)).exists()


def test_undo_brings_no_content_into_the_store_of_another_session(root: Root) -> None:
    end = [entry("ccccccc0", None, "user", "yes"), entry("ccccccc1", None, "assistant", "yes")]
    path = root.add(SPY, [*with_markers(root), *end])
    before = path.read_bytes()
    listed = json.loads(root.bsd("context", SPY, "--json"))["entries"]
    for one in listed:
        root.bsd("distill", SPY, one["hash"], "in short")
    changed = path.read_text().count("in short")
    assert changed >= 2
    for _ in range(changed):
        assert SECRET not in root.bsd("undo", SPY)
    assert path.read_bytes() == before
    assert not list(root.layout.store_dir(SessionName.parse(SPY)).glob("0*"))


@pytest.mark.parametrize("say", SAID)
def test_no_call_in_a_transcript_gets_it(root: Root, say: Say) -> None:
    said = say(root)
    calls: list[Json] = []
    for number, one in enumerate(own_ids(said)):
        for tool, arguments in (
            ("restore_remote", {"entry": one}),
            ("read_extracted", {"entry": one}),
            ("purge_control", {"action": "restore", "entry": one}),
        ):
            name = f"{number}{tool[:3]}"
            block = {"type": "toolCall", "id": name, "name": tool, "arguments": arguments}
            asked = entry(f"d{name}", None, "assistant", "Let me see.")
            asked["message"]["content"].append(block)
            asked["message"]["stopReason"] = "toolUse"
            result = entry(f"e{name}", None, "toolResult", "Tool not found")
            result["message"] |= {"toolCallId": name, "toolName": tool}
            calls += [asked, result]
    end = [entry("ffffffff", None, "assistant", "done")]
    path = root.add(SPY, [*said, *calls, *end])
    config = ConfigService(root.layout.config_file)
    caller = Caller(layout=root.layout, config=config, actor="agent", budget=RetryBudget(wait=0.0))
    assert InBand(caller, SessionName.parse(SPY)).carry_out()
    lines = path.read_bytes()
    assert SECRET.encode() not in lines
    assert b"[[extracted-" in lines


# --- a server that is bound to one session ---


Heard = list[tuple[bool, str]]  # whether an answer is an error, and its text


def ask(root: Root, name: str, *entries: str) -> Heard:
    """Return the answers of `bsd mcp --session` to all tools that give texts."""

    async def work(client: Client, heard: Heard) -> None:
        async def call(tool: str, **arguments: Any) -> None:
            root.rest()
            result = await call_until_answered(client, tool, arguments)
            heard.append((bool(result.is_error), result.model_dump_json()))

        await call("purge_control", action="get_context")
        await call("search_extracted", query="words")
        for one in entries:
            await call("read_extracted", entry=one)
            await call("restore_remote", entry=one, inline=False)
            await call("restore_remote", entry=one)
            await call("restore", entry_id=one)
            await call("purge_control", action="restore", entry=one)

    return serve(root.path, name, work)


def serve(root: Path, name: str, work: Callable[[Client, Heard], Awaitable[None]]) -> Heard:
    """Let `work` talk to a server that is bound to a session."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    heard: Heard = []
    config = str(root.parent / "config")
    command, *words = forked.command("--root", str(root), "mcp", "--session", name)
    server = StdioServerParameters(
        command=command,
        args=words,
        env={**os.environ, "XDG_CONFIG_HOME": config},
    )

    async def run() -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with Client(stdio_client(server)) as client:
                await work(client, heard)

    anyio.run(run)
    return heard


@pytest.mark.daemon
@pytest.mark.parametrize("say", SAID)
def test_a_server_bound_to_a_session_does_not_give_it(root: Root, say: Say) -> None:
    said = say(root)
    path = root.add(SPY, said)
    before = path.read_bytes()
    heard = ask(root, SPY, *own_ids(said))
    assert not [one for _, one in heard if SECRET in one]
    assert path.read_bytes() == before


@pytest.mark.daemon
def test_it_reads_what_its_session_was_forked_from(root: Root) -> None:
    """And the origin of the fork, for a fork without stored values of its own."""
    lean = root.entries(ORIGIN)[1:]
    root.add("main/middle", lean, parentSession=str(root.file(ORIGIN)))
    root.add(FORK, lean, parentSession=str(root.file("main/middle")))
    given = ask(root, FORK, *AWAY)[2:]
    for at in range(0, len(given), len(given) // len(AWAY)):
        failed, read = given[at]
        assert not failed
        assert SECRET in read


@pytest.mark.daemon
def test_it_reads_what_was_stored_under_a_former_name(root: Root) -> None:
    path = root.file(ORIGIN)
    path.rename(path.with_name("renamed.jsonl"))
    assert SECRET in ask(root, "main/renamed", "aaaaaaa1")[2][1]


@pytest.mark.daemon
def test_it_reads_no_other_session_even_of_a_copy_that_a_person_may_restore(root: Root) -> None:
    """No program records that this copy is of that session; its lines prove it."""
    path = root.add(COPY, root.entries(ORIGIN)[1:])
    before = path.read_bytes()
    assert not [one for _, one in ask(root, COPY, *AWAY) if SECRET in one]
    assert path.read_bytes() == before
    root.bsd("restore-all", COPY, "--yes", "--keep-enabled")
    assert path.read_text().count(LONG) == len(AWAY)


# --- the same with other programs ---


def claude_code_branch(lines: list[Json]) -> list[Json]:
    """Copy as `/branch` does: like a fork, with the origin in each line."""
    return [
        {**line, "sessionId": FORKED, "forkedFrom": {"sessionId": line["sessionId"]}}
        for line in lines
        if "uuid" in line
    ]


def claude_code_copy(lines: list[Json]) -> list[Json]:
    """Make the same copy, without any mention of its origin."""
    return [{**line, "sessionId": FORKED} for line in lines if "uuid" in line]


def pi_fork(lines: list[Json]) -> list[Json]:
    return [{**lines[0], "id": FORKED, "parentSession": f"/else/{PI.session}.jsonl"}, *lines[1:]]


def pi_copy(lines: list[Json]) -> list[Json]:
    return [{**lines[0], "id": FORKED}, *lines[1:]]


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("kind", "session", "copied", "is_fork"),
    [
        (CLAUDE_CODE, FORKED, claude_code_fork, True),
        (CLAUDE_CODE, FORKED, claude_code_branch, True),
        (CLAUDE_CODE, FORKED, claude_code_copy, False),
        (CODEX, ROLLOUT, codex_fork, True),
        (PI, f"2026-01-01T00-00-00-000Z_{FORKED}", pi_fork, True),
        (PI, f"2026-01-01T00-00-00-000Z_{FORKED}", pi_copy, False),
    ],
)
def test_it_reads_what_the_program_says_that_its_session_was_forked_from(
    kind: Kind,
    session: str,
    copied: Callable[[list[Json]], list[Json]],
    is_fork: bool,
    tmp_path: Path,
    clock: Clock,
) -> None:
    home = Home.of(kind, tmp_path, kind.lines())
    config = tmp_path / "config" / "bsd" / "bsd.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[[sources]]\nkind = "{kind.kind}"\npath = "{home.source}"\n')
    caller = make_caller(home.layout, clock)
    assert caller.extract(home.name, overrides=EVERYTHING).values
    lean = [json.loads(line) for line in home.path.read_bytes().splitlines()]
    fork = home.path.with_name(f"{session}.jsonl")
    fork.write_bytes(raw(copied(lean)))
    set_idle(fork)
    away = next(line for line in lean if "[[extracted-" in str(line.get(RESULTS[kind.kind])))
    named = str(away).partition("[[extracted-")[2].partition("]]")[0]

    async def work(client: Client, heard: Heard) -> None:
        result = await call_until_answered(client, "read_extracted", {"entry": named})
        heard.append((bool(result.is_error), result.model_dump_json()))

    (answer,) = serve(home.layout.root, f"{home.name.agent}/{session}", work)
    assert any(one in answer[1] for one in ("long old text", '"type":"image"')) is is_fork


RESULTS = {"claude-code": "toolUseResult", "codex": "payload", "pi": "message"}

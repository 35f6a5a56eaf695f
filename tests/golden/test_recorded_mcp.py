"""Descriptions of the tools for programs, and the tools' answers."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Self

from tests import forked
from tests.golden.book import check
from tests.golden.conftest import Ask
from tests.golden.world import World
from tests.waiting import DEADLINE_SECONDS

_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "golden", "version": "1"},
}
SERVERS = {
    "all": ["--tools", "all"],
    "of one session": ["--session", "main/alpha", "--tools", "sessions"],
    "of facts": ["--agent", "main", "--tools", "memory"],
}


_GOES_ON = "repeat the very same call later"


class Server:
    """`bsd mcp` in a process of its own."""

    def __init__(self, world: World, *options: str) -> None:
        self._world = world
        argv = forked.command("--root", str(world.root), "mcp", *options)
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._number = 0

    def __enter__(self) -> Self:
        self.hello = self.ask("initialize", **_HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(DEADLINE_SECONDS)

    def ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        said = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters}
        self._send(said)
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._number:
                result = answer.get("result", answer.get("error"))
                for part in result.get("content", []):
                    part["text"] = _read(part["text"])
                return self._world.steady(result)
        raise AssertionError("the server has ended")

    def call(self, name: str, **arguments: Any) -> Any:
        self._world.rest()
        answer = self.ask("tools/call", name=name, arguments=arguments)
        while answer.get("isError") and _GOES_ON in json.dumps(answer):  # on a busy machine
            answer = self.ask("tools/call", name=name, arguments=arguments)
        for part in answer.get("content", []):
            if answer.get("structuredContent") is not None:
                part.pop("text", None)  # it repeats the structured content
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


def _read(text: str) -> Any:
    """The value of a block, if it is JSON; otherwise the block."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_tools(ask: Ask, world: World) -> None:
    ask("config", "set", "age_threshold_hours", "0")
    ask("extract", "--keep-recent", "0")
    out = ask("context", "main/alpha", "--json")["out"]["extracted_ids"]
    answers: dict[str, Any] = {}
    for which, options in SERVERS.items():
        with Server(world, *options) as server:
            answers[f"{which}: hello"] = server.hello
            for tool in server.ask("tools/list")["tools"]:
                answers[f"{which}: {tool['name']}"] = tool
            tell = _Calls(server, answers, which)
            if which == "of facts":
                _facts(tell)
            else:
                _sessions(tell, out, {} if "--session" in options else {"session": "main/alpha"})
    check("mcp", answers)


class _Calls:
    def __init__(self, server: Server, answers: dict[str, Any], which: str) -> None:
        self._server = server
        self._answers = answers
        self._which = which

    def __call__(self, tool: str, **arguments: Any) -> Any:
        answer = self._server.call(tool, **arguments)
        self._answers[f"{self._which}: {tool} {json.dumps(arguments)}"] = answer
        return answer


def _sessions(tell: _Calls, out: list[str], where: dict[str, str]) -> None:
    first = 0 if where else 3
    tell("purge_control", action="get_context", **where)
    tell("read_extracted", entry=out[first], **where)
    tell("restore_remote", entry=out[first], inline=False, **where)
    tell("restore", entry_id=out[first + 1], **where)
    tell("purge_control", action="restore", entry=out[first + 2], **where)
    tell("purge_control", action="set_extractable", entry=out[0], value=True, **where)
    tell("search_extracted", query="tide", limit=2, **where)
    tell("context", action="discard", targets=[["ffffff"]], **where)
    tell("restore", entry_id="nobody", **where)
    tell("restore", **where)
    tell("no_tool", **where)


def _facts(tell: _Calls) -> None:
    tell("memory_store", text="Ada prefers tea", entity="Ada", key="drink")
    tell("memory_recall", query="tea")
    tell("memory_lookup", entity="Ada")
    tell("memory_confirm", id="nobody")
    tell("memory_checkpoint", action="save", intent="to sail", state="in port")
    tell("memory_checkpoint", action="restore")
    tell("memory_prune", mode="both")
    tell("memory_forget", query="tea")
    tell("memory_store")

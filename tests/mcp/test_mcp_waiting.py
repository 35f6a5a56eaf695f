"""Answers that are not ready when whoever asked can wait no longer."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
import pytest

from bsd.actions.read_extracted import ReadHeld, ReadOut
from bsd.actions.verb import Meanwhile, Verb, no_one_waits
from bsd.actions.verbs import ReadExtracted, Restore
from bsd.core.errors import Busy
from bsd.core.layout import Layout, SessionName
from bsd.mcp.scope import Scope
from bsd.mcp.server import MemoryHands, Toolbox
from bsd.mcp.tools import TOOLS
from bsd.planning.restore import Restored
from bsd.planning.view import Context
from bsd.sessions.surgeon import Surgeon
from tests.mcp.answers import document_of
from tests.waiting import DEADLINE_SECONDS

NAME = SessionName("main", "s1")
LOOK = {"action": "get_context"}


class Slow:
    """Hands that do nothing until they may; a surgeon's answers."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.may = threading.Event()
        self.begun = 0
        self.early_answer: Meanwhile = no_one_waits

    def query(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Answer as the action of this name does, of the entry that is named."""
        return getattr(self, action.__name__)(ReadExtracted(args[1]))

    run = query

    def surgeon(self, name: SessionName, *, writes: bool) -> Surgeon:
        assert name == NAME
        return cast("Surgeon", self)

    def get_context(self, _: object) -> Context:
        self._work()
        return Context(str(NAME), 3, 0, (), 0, 0, 0, None, ())

    def read_extracted(self, asked: ReadExtracted) -> ReadOut:
        return ReadOut(session=str(NAME), entry_id=asked.entry, texts={"output": "long ago"})

    def read_held(self, asked: ReadExtracted) -> ReadHeld:
        return ReadHeld(
            session=str(NAME), entry_id=asked.entry, texts={"output": "long ago"}, is_away=True
        )

    def restore(self, asked: Restore) -> Restored:
        self._work()
        return Restored(
            restored=True,
            entry_id=asked.entry,
            keys_restored=("output",),
            sizes_bytes={"output": 8},
        )

    def set_extractable(self, *_: object) -> None:
        raise Busy("session main/s1 is in use: its lock is held")

    def _work(self) -> None:
        self.begun += 1
        assert self.may.wait(DEADLINE_SECONDS)


Ask = Callable[[str, dict[str, Any]], Awaitable[types.CallToolResult]]


def serve(hands: Slow, work: Callable[[Ask], Awaitable[None]]) -> None:
    """Let `work` ask a toolbox that waits for nothing."""
    memory = cast("MemoryHands", None)
    scope = Scope(session=NAME)
    toolbox = Toolbox(hands, scope, memory, threading.Event(), offered=tuple(TOOLS), budget=0.0)

    async def ask(tool: str, arguments: dict[str, Any]) -> types.CallToolResult:
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        return await toolbox.call(cast("Any", None), params)

    async def run() -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                toolbox.works_in(tasks)
                await work(ask)
                hands.may.set()

    anyio.run(run)


async def in_the_end(ask: Ask, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Ask again until it is done."""
    while True:
        document: dict[str, Any] = document_of(await ask(tool, arguments))
        if "goes on" not in document.get("error", "") and document.get("inline") != "under way":
            return document
        await anyio.sleep(0.01)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    def perform(
        verb: Verb[Any, Any],
        hands: Slow,
        name: SessionName,
        asked: object,
        meanwhile: Meanwhile = no_one_waits,
    ) -> Any:
        if verb.name == "restore" and verb.act is not None:  # asks for others
            hands.early_answer = meanwhile
            return verb.act(cast("Any", hands), name, asked)
        return getattr(hands, verb.name)(asked)

    monkeypatch.setattr("bsd.mcp.tools.perform", perform)
    return Slow(tmp_path)


def test_what_takes_long_goes_on_and_is_answered_when_asked_again(slow: Slow) -> None:
    async def work(ask: Ask) -> None:
        for _ in range(3):
            result = await ask("purge_control", LOOK)
            assert result.is_error
            assert "goes on" in document_of(result)["error"]
            assert "very same call again" in document_of(result)["hint"]
        slow.may.set()
        assert (await in_the_end(ask, "purge_control", LOOK))["total_entries"] == 3
        assert slow.begun == 1, "nobody begins it anew"
        again = await in_the_end(ask, "purge_control", LOOK)
        assert (again["total_entries"], slow.begun) == (3, 2), "an answer is given once"

    serve(slow, work)


def test_the_text_is_there_while_it_is_still_being_put_back(slow: Slow) -> None:
    asked = {"entry_id": "e1"}

    async def work(ask: Ask) -> None:
        document = document_of(await ask("restore", asked))
        while "error" in document:  # it has just begun
            await anyio.sleep(0.01)
            document = document_of(await ask("restore", asked))
        assert (document["inline"], document["restored"]) == ("under way", False)
        assert document["texts"] == {"output": "long ago"}
        slow.may.set()
        document = await in_the_end(ask, "restore", asked)
        assert (document["inline"], document["restored"]) == ("now", True)
        assert slow.begun == 1

    serve(slow, work)


def test_other_calls_need_not_wait_for_it(slow: Slow) -> None:
    async def work(ask: Ask) -> None:
        await ask("purge_control", LOOK)
        read = await in_the_end(ask, "read_extracted", {"entry": "e1"})
        assert read["texts"] == {"output": "long ago"}
        pin = {"action": "set_extractable", "entry": "e1", "value": False}
        busy = await in_the_end(ask, "purge_control", pin)
        assert busy["busy"] is True
        assert "no bsd daemon runs" in busy["hint"]

    serve(slow, work)


def test_what_reads_much_is_done_one_by_one(slow: Slow) -> None:
    """Together they would keep each other, and all other calls, from their answers."""

    async def work(ask: Ask) -> None:
        for number in range(5):
            await ask("purge_control", {**LOOK, "entry": f"e{number}"})
        await in_the_end(ask, "read_extracted", {"entry": "e1"})
        assert slow.begun == 1
        slow.may.set()
        await in_the_end(ask, "purge_control", {**LOOK, "entry": "e4"})
        assert slow.begun == 5

    serve(slow, work)


def test_answers_that_nobody_comes_for_are_forgotten(slow: Slow) -> None:
    async def work(ask: Ask) -> None:
        slow.may.set()
        for number in range(100):
            await ask("read_extracted", {"entry": f"e{number}"})
        assert (await in_the_end(ask, "purge_control", LOOK))["total_entries"] == 3

    serve(slow, work)

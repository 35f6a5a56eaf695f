"""Calls that take longer than an answer may."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp_types import CallToolResult

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import ReadHeld, ReadOut
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy
from bsd.core.layout import Layout, SessionName
from bsd.mcp.scope import Scope
from bsd.mcp.server import add_session_tools
from bsd.mcp.tool_server import ToolServer, note_early_answer
from bsd.mcp.tools import SessionTools
from bsd.planning.restore import Restored
from bsd.planning.view import Context
from tests.mcp.answers import document_of
from tests.waiting import DEADLINE_SECONDS

NAME = SessionName("main", "s1")
LOOK = {"action": "get_context"}
TEXTS = {"output": "long ago"}


class SlowActions:
    """An executor with prepared answers; two actions last until the test ends them."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun = 0

    def __call__(
        self,
        _context: ActionContext,
        action: Callable[..., Any],
        args: tuple[Any, ...],
        _kwargs: object,
        *,
        changes: bool,
    ) -> Any:
        assert args[0] == NAME
        match action.__name__:
            case "get_context":
                self._work()
                return Context(str(NAME), 3, 0, (), 0, 0, 0, None, ())
            case "read_extracted":
                return ReadOut(session=str(NAME), entry_id=args[1], texts=TEXTS)
            case "read_held":
                return ReadHeld(session=str(NAME), entry_id=args[1], texts=TEXTS, is_away=True)
            case "restore":
                self._work()
                sizes = {"output": 8}
                return Restored(
                    restored=True, entry_id=args[1], keys_restored=("output",), sizes_bytes=sizes
                )
            case "search_extracted":
                raise ZeroDivisionError
        raise Busy("session main/s1 is in use: its lock is held")

    def _work(self) -> None:
        self.begun += 1
        assert self.may_end.wait(DEADLINE_SECONDS)


Ask = Callable[[str, dict[str, Any]], Awaitable[CallToolResult]]


def serve(slow: SlowActions, root: Path, work: Callable[[Ask], Awaitable[None]]) -> None:
    """Let `work` call tools of a server whose answers may take no time."""
    layout = Layout(root)
    context = ActionContext(
        layout=layout,
        config=ConfigService(layout.config_file),
        early_answer=note_early_answer,
        executor=cast("Any", slow),
    )
    server = ToolServer(budget=0.0)
    add_session_tools(server, SessionTools(context, Scope(session=NAME)))

    async def ask(tool: str, arguments: dict[str, Any]) -> CallToolResult:
        return await server.call_tool(tool, arguments)

    async def run() -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with server.running():
                await work(ask)
                slow.may_end.set()

    anyio.run(run)


async def in_the_end(ask: Ask, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Repeat the call until it is complete."""
    while True:
        document: dict[str, Any] = document_of(await ask(tool, arguments))
        if "continues" not in document.get("error", "") and document.get("inline") != "under way":
            return document
        await anyio.sleep(0.01)


@pytest.fixture
def slow() -> SlowActions:
    return SlowActions()


def test_what_takes_long_goes_on_and_is_answered_when_asked_again(
    slow: SlowActions, tmp_path: Path
) -> None:
    async def work(ask: Ask) -> None:
        for _ in range(3):
            result = await ask("purge_control", LOOK)
            assert result.is_error
            assert "continues" in document_of(result)["error"]
            assert "very same call" in document_of(result)["hint"]
        slow.may_end.set()
        assert (await in_the_end(ask, "purge_control", LOOK))["total_entries"] == 3
        assert slow.begun == 1, "nobody begins it anew"
        again = await in_the_end(ask, "purge_control", LOOK)
        assert (again["total_entries"], slow.begun) == (3, 2), "an answer is given once"

    serve(slow, tmp_path, work)


def test_the_text_is_there_while_it_is_still_being_put_back(
    slow: SlowActions, tmp_path: Path
) -> None:
    asked = {"entry_id": "e1"}

    async def work(ask: Ask) -> None:
        document = document_of(await ask("restore", asked))
        while "error" in document:  # the action has just begun
            await anyio.sleep(0.01)
            document = document_of(await ask("restore", asked))
        assert (document["inline"], document["restored"]) == ("under way", False)
        assert document["texts"] == TEXTS
        slow.may_end.set()
        document = await in_the_end(ask, "restore", asked)
        assert (document["inline"], document["restored"]) == ("now", True)
        assert slow.begun == 1

    serve(slow, tmp_path, work)


def test_other_calls_need_not_wait_for_it(slow: SlowActions, tmp_path: Path) -> None:
    async def work(ask: Ask) -> None:
        await ask("purge_control", LOOK)
        read = await in_the_end(ask, "read_extracted", {"entry": "e1"})
        assert read["texts"] == TEXTS
        pin = {"action": "set_extractable", "entry": "e1", "value": False}
        busy = await in_the_end(ask, "purge_control", pin)
        assert busy["busy"] is True
        assert "no bsd daemon runs" in busy["hint"]

    serve(slow, tmp_path, work)


def test_what_reads_much_is_done_one_by_one(slow: SlowActions, tmp_path: Path) -> None:
    """Simultaneous calls would delay each other and all other calls."""

    async def work(ask: Ask) -> None:
        for number in range(5):
            await ask("purge_control", {**LOOK, "entry": f"e{number}"})
        await in_the_end(ask, "read_extracted", {"entry": "e1"})
        assert slow.begun == 1
        slow.may_end.set()
        await in_the_end(ask, "purge_control", {**LOOK, "entry": "e4"})
        assert slow.begun == 5

    serve(slow, tmp_path, work)


def test_answers_that_nobody_comes_for_are_forgotten(slow: SlowActions, tmp_path: Path) -> None:
    async def work(ask: Ask) -> None:
        slow.may_end.set()
        for number in range(100):
            await ask("read_extracted", {"entry": f"e{number}"})
        assert (await in_the_end(ask, "purge_control", LOOK))["total_entries"] == 3

    serve(slow, tmp_path, work)


def test_an_unexpected_error_is_the_answer_of_its_call_only(
    slow: SlowActions, tmp_path: Path
) -> None:
    async def work(ask: Ask) -> None:
        failed = await in_the_end(ask, "search_extracted", {"query": "x"})
        assert failed["error"] == "internal error: ZeroDivisionError()"
        read = await in_the_end(ask, "read_extracted", {"entry": "e1"})
        assert read["texts"] == TEXTS

    serve(slow, tmp_path, work)

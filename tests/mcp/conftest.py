"""A root with a session, and the parts that carry out an agent's calls in the session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.actions.extract import extract_due
from bsd.core.audit import AuditLog
from bsd.core.config_file import ConfigService
from bsd.core.errors import Forbidden
from bsd.core.layout import Layout, SessionName
from bsd.mcp.arguments import read_arguments
from bsd.mcp.inband import InBand
from bsd.mcp.scope import Scope
from bsd.mcp.tools import TOOLS, SessionTools
from bsd.sessions.idle import RetryBudget
from bsd.store.state import StateDb
from tests.actions.performed import Caller
from tests.openclaw_tree import set_idle
from tests.session_files import Talk, text, thought

NAME = SessionName("main", "s1")
LONG = "lorem ipsum dolor sit amet " * 40
UNKNOWN = "Tool not found"
HEADER = {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-02-01T00:00:00Z"}


@dataclass
class Desk:
    """A session, as its program writes it and as bsd works on it."""

    layout: Layout
    ahead: float = 0.0
    written: int = 0
    looks: list[bool] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.layout.agents / NAME.agent / "sessions" / f"{NAME.session}.jsonl"

    @property
    def config(self) -> ConfigService:
        return ConfigService(self.layout.config_file)

    def clock(self) -> float:
        return time.time() + self.ahead

    def caller(self, state: StateDb | None = None, actor: str = "daemon") -> Caller:
        def sleep(seconds: float) -> None:
            self.ahead += seconds

        budget = RetryBudget(30.0, clock=self.clock, sleep=sleep)
        return Caller(
            layout=self.layout, config=self.config, actor=actor, budget=budget, state=state
        )

    def append(self, *entries: dict[str, Any]) -> None:
        """Append as the session's program does, and let an hour pass."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in entries)
        self.rest()

    def rest(self) -> None:
        """Let an hour pass since the last line."""
        set_idle(self.path)

    def look(self) -> bool:
        """Do the daemon's work on an idle session: calls first, then the extraction."""
        state = StateDb(self.layout.state_db)
        calls, daemon = InBand(self.caller(actor="agent"), NAME), self.caller()
        if extract_due(daemon, NAME, state, watch=calls.watch) is not None:
            return False
        changed = calls.carry_out()
        extract_due(daemon, NAME, state)
        return changed

    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def entry(self, entry_id: str) -> dict[str, Any]:
        (found,) = [one for one in self.entries() if entry_id in {one.get("id"), one.get("__id")}]
        return found

    def audit(self) -> list[dict[str, Any]]:
        """The audit log's records of calls in the session."""
        log = AuditLog(self.layout.audit_file)
        return [line for line in log.search(b"") if line.get("inBand")]

    def settings(self, **fields: object) -> None:
        self.config.update(fields)


def agent_context(
    layout: Layout,
    config: ConfigService,
    *,
    writes: bool = True,
    clock: Callable[[], float] = time.time,
    early_answer: Callable[[Any], None] = lambda _: None,
) -> ActionContext:
    """Return a context as tools have it: it does not wait for sessions in use."""

    def refuse_changes(
        context: ActionContext,
        action: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        changes: bool,
    ) -> Any:
        if changes:
            raise Forbidden("this bsd is read-only")
        return action(replace(context, executor=None), *args, **kwargs)

    return ActionContext(
        layout=layout,
        config=config,
        actor="agent",
        budget=RetryBudget(0.0, clock=clock, sleep=_never),
        early_answer=early_answer,
        executor=None if writes else refuse_changes,
    )


def _never(seconds: float) -> None:
    raise AssertionError(f"somebody waits {seconds} s")


def call_tool(
    context: ActionContext, tool: str, scope: Scope | None = None, **arguments: Any
) -> dict[str, Any]:
    """Call a tool as a program does, over MCP."""
    tools = SessionTools(context, scope or Scope(client=lambda _: ()))
    answer: dict[str, Any] = getattr(tools, tool)(**read_arguments(TOOLS[tool], arguments))
    return answer


def call(desk: Desk, tool: str, *, rest: bool = True, **arguments: Any) -> dict[str, Any]:
    """Call a tool as an agent does, out of band."""
    if rest:
        desk.rest()
    return call_tool(agent_context(desk.layout, desk.config, clock=desk.clock), tool, **arguments)


def text_of(entry: dict[str, Any]) -> str:
    return str(entry["message"]["content"][0]["text"])


@pytest.fixture
def away(desk: Desk, flat: Flat) -> Desk:
    """Seed 001's entry, extracted from its session."""
    flat({"__id": "msg-456", "type": "tool_result", "content": LONG, "output": LONG + LONG})
    flat(*({"__id": f"m{n}", "type": "user", "content": "x"} for n in range(4)))
    desk.look()
    assert desk.entry("msg-456")["output"] == "[[extracted-msg-456]]"
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(Layout(tmp_path / "root"))
    desk.path.parent.mkdir(parents=True)
    return desk


class Agent:
    """Writes a conversation into the session, as OpenClaw does."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._talk = Talk()
        desk.append(HEADER)

    def user(self, words: str) -> str:
        return self._written(self._talk.user(words))

    def says(self, words: str, *, model: str = "claude-opus-4-5", signature: str = "") -> str:
        thinking = [thought("hm") | {"thinkingSignature": signature}] if signature else []
        return self._written(self._talk.says(*thinking, text(words), model=model))

    def calls(self, *calls: tuple[str, str, Any], words: str = "Let me see.") -> str:
        """Write calls of tools: (id, name, arguments)."""
        blocks = [
            {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
            for call_id, name, arguments in calls
        ]
        return self._written(self._talk.says(text(words), *blocks))

    def result(self, call_id: str, name: str, words: str, *, error: bool = False) -> str:
        return self._written(self._talk.answers(call_id, words, name, error=error))

    def _written(self, name: str) -> str:
        number = len(self._talk.entries) - 1
        when = f"2026-02-01T00:{number // 60:02d}:{number % 60:02d}Z"
        self._desk.append(self._talk.entries[-1] | {"timestamp": when})
        return name

    def past(self) -> str:
        """Write a turn with a long result, old enough to leave; return the id of the result."""
        self.user("read the file")
        self.calls(("c0", "read", {"path": "a.txt"}))
        result = self.result("c0", "read", LONG)
        for number in range(3):
            self.says(f"I have read it {number}")
            self.user("go on")
        self.says("done")
        return result


@pytest.fixture
def agent(desk: Desk) -> Agent:
    return Agent(desk)


Flat = Callable[..., None]


@pytest.fixture
def flat(desk: Desk) -> Flat:
    """Appends entries of the seeds' format."""

    def write(*entries: dict[str, Any]) -> None:
        desk.append(*entries)

    return write

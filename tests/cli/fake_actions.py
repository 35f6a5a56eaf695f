"""Actions that only record their arguments, and command lines that use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bsd.actions.context import ActionContext
from bsd.cli.main import run
from bsd.core.layout import SessionName
from bsd.planning.edit import ExtractableSet
from bsd.planning.restore import Restored
from bsd.planning.result import SessionResult, Status
from bsd.planning.view import Context, ExtractedContent
from tests.openclaw_tree import add_session

Answer = SessionResult | BaseException


@dataclass
class FakeActions:
    """Give the answers that a test has set, or the answer that there was no work."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)  # for many sessions
    answer: dict[str, Any] = field(default_factory=dict)  # for a single session
    acts: Callable[[], object] = lambda: None  # called while an action runs
    content: dict[str, Any] = field(default_factory=dict)  # of every entry
    unavailable: dict[str, str] = field(default_factory=dict)
    goes: dict[str, Path] = field(default_factory=dict)  # sessions deleted meanwhile

    def extract(
        self,
        context: ActionContext,
        session: SessionName,
        *,
        dry_run: bool = False,
        settings: Mapping[str, Any] | None = None,
        turn_over: bool = False,
    ) -> SessionResult:
        given = dict(settings or {}) | ({"turn_over": True} if turn_over else {})
        self.asked.append(("extract", str(session), dry_run, given))
        return self._next(context, session)

    def restore_all(
        self, context: ActionContext, session: SessionName, *, uninstalling: bool = False
    ) -> SessionResult:
        self.asked.append(("restore_all", str(session), uninstalling))
        return self._next(context, session)

    def restore(
        self,
        _: ActionContext,
        session: SessionName,
        entry: str,
        keys: Sequence[str] | None = None,
    ) -> Restored:
        self.asked.append(("restore", str(session), entry, keys and list(keys)))
        self.acts()
        return Restored(**self.answer)

    def set_extractable(
        self, _: ActionContext, session: SessionName, entry: str, value: bool | int | None
    ) -> ExtractableSet:
        self.asked.append(("set_extractable", str(session), entry, value))
        return ExtractableSet(**self.answer, index=0)

    def get_context(self, _: ActionContext, session: SessionName) -> Context:
        self.asked.append(("get_context", str(session)))
        self.acts()
        return Context(**self.answer)

    def extracted_content(self, _source: Any, _fmt: Any, entry: str, _: Any) -> ExtractedContent:
        return ExtractedContent(entry, 0, "0000_x", None, 0, self.content, self.unavailable)

    def _next(self, context: ActionContext, session: SessionName) -> SessionResult:
        self.waits.append(context.budget.wait)
        if (path := self.goes.get(str(session))) is not None:
            path.unlink(missing_ok=True)
        self.acts()
        answers = self.answers.get(str(session), [])
        answer = answers.pop(0) if answers else SessionResult(str(session), Status.UNCHANGED)
        context.progress(1)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass
class Cli:
    """Runs command lines in this process and keeps their output."""

    root: Path
    actions: FakeActions
    capture: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def __call__(self, *argv: str) -> int:
        code = run(["--root", str(self.root), *argv])
        self.out, self.err = self.capture.readouterr()
        return code

    def document(self, *argv: str) -> Any:
        """The JSON document that a call prints."""
        self(*argv, "--json")
        return json.loads(self.out)


def listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """A root with two agents and three sessions, and actions that only record calls."""
    root = tmp_path / "root"
    for name in ("main/a", "main/b", "other/a"):
        add_session(root, name, b'{"type":"session","version":3,"id":"x"}\n')
    actions = FakeActions()
    for where in (
        *("cli.extract.extract", "cli.extract.restore_all"),
        *("cli.entries.restore", "cli.entries.set_extractable", "cli.entries.get_context"),
        *("cli.agent_tools.set_extractable", "cli.agent_tools.get_context"),
        *("mcp.restoring.restore", "actions.read_extracted.extracted_content"),
    ):
        monkeypatch.setattr(f"bsd.{where}", getattr(actions, where.rpartition(".")[2]))
    return Cli(root, actions, capsys)

"""A surgeon that only notes what it was asked, and a call that uses it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bsd.cli.call import Call
from bsd.cli.main import run
from bsd.core.layout import SessionName
from bsd.planning.edit import ExtractableSet
from bsd.planning.restore import Restored
from bsd.planning.result import SessionResult, Status
from bsd.planning.view import Context, ExtractedContent
from tests.openclaw_tree import add_session

Answer = SessionResult | BaseException


@dataclass
class FakeSurgeon:
    """Answers what it was told to, or that there was nothing to do."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    refuses: BaseException | None = None
    goes: dict[str, Path] = field(default_factory=dict)  # sessions deleted meanwhile

    def extract(
        self,
        name: SessionName,
        *,
        by_hand: bool = False,
        overrides: Mapping[str, Any] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SessionResult:
        assert by_hand
        self.asked.append(("extract", str(name), False, dict(overrides or {})))
        return self._next(name, progress)

    def foretell(
        self, context: Any, name: SessionName, settings: Mapping[str, Any]
    ) -> SessionResult:
        self.asked.append(("extract", str(name), True, dict(settings)))
        return self._next(name, context.progress)

    def restore_all(
        self,
        name: SessionName,
        *,
        leaving: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> SessionResult:
        self.asked.append(("restore_all", str(name), leaving))
        return self._next(name, progress)

    def restore(self, name: SessionName, entry: str, keys: list[str] | None) -> dict[str, Any]:
        self.asked.append(("restore", str(name), entry, keys))
        if self.refuses is not None:
            raise self.refuses
        return self.answer

    def look(self, name: SessionName, query: Callable[[Any, Any, Any], Any]) -> Any:
        return query(None, None, SimpleNamespace(stored=None, name=name))

    def extracted_content(self, _source: None, _fmt: None, entry: str, _: None) -> ExtractedContent:
        return ExtractedContent(entry, 0, "0000_x", None, 0, self.content, self.unavailable)

    def set_extractable(
        self, name: SessionName, entry: str, value: bool | int | None
    ) -> dict[str, Any]:
        self.asked.append(("set_extractable", str(name), entry, value))
        return self.answer

    def context(self, name: SessionName) -> dict[str, Any]:
        self.asked.append(("context", str(name)))
        return self.answer

    def _next(self, name: SessionName, progress: Callable[[int], None] | None) -> SessionResult:
        if (path := self.goes.get(str(name))) is not None:
            path.unlink(missing_ok=True)
        answers = self.answers.get(str(name), [])
        answer = answers.pop(0) if answers else SessionResult(str(name), Status.UNCHANGED)
        if progress:
            progress(1)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass
class Cli:
    """Runs command lines in this process and keeps what they printed."""

    root: Path
    surgeon: FakeSurgeon
    capture: pytest.CaptureFixture[str]
    out: str = ""
    err: str = ""

    def __call__(self, *argv: str) -> int:
        code = run(["--root", str(self.root), *argv])
        self.out, self.err = self.capture.readouterr()
        return code

    def document(self, *argv: str) -> Any:
        """The one JSON document that a call prints."""
        self(*argv, "--json")
        return json.loads(self.out)


def listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """A root with two agents and three sessions, and a surgeon who only listens."""
    root = tmp_path / "root"
    for name in ("main/a", "main/b", "other/a"):
        add_session(root, name, b'{"type":"session","version":3,"id":"x"}\n')
    surgeon = FakeSurgeon()

    def hire(_call: Call, *, wait: float = 30.0, **_how: Any) -> FakeSurgeon:
        surgeon.waits.append(wait)
        return surgeon

    def restore(
        context: Any, name: SessionName, entry: str, keys: Sequence[str] | None = None
    ) -> Restored:
        context.surgeon()
        return Restored(**surgeon.restore(name, entry, None if keys is None else list(keys)))

    def restore_all(context: Any, name: SessionName, *, uninstalling: bool) -> SessionResult:
        found: SessionResult = context.surgeon().restore_all(
            name, leaving=uninstalling, progress=context.progress
        )
        return found

    def set_extractable(
        context: Any, name: SessionName, entry: str, value: bool | int | None
    ) -> ExtractableSet:
        context.surgeon()
        return ExtractableSet(**surgeon.set_extractable(name, entry, value), index=0)

    def get_context(context: Any, name: SessionName) -> Context:
        context.surgeon()
        return Context(**surgeon.context(name))

    for action in (restore, restore_all, set_extractable, get_context):
        monkeypatch.setattr(f"bsd.actions.verbs.{action.__name__}", action)
    monkeypatch.setattr("bsd.mcp.restoring.restore", restore)
    monkeypatch.setattr(Call, "surgeon", hire)
    monkeypatch.setattr(Call, "queries", lambda _call: surgeon)
    monkeypatch.setattr("bsd.actions.extract._foretell", surgeon.foretell)
    monkeypatch.setattr("bsd.actions.read_extracted.extracted_content", surgeon.extracted_content)
    monkeypatch.setattr("bsd.actions.show.views", lambda *_, **_how: iter(()))
    usual = {"sources": (), "readonly": False, "quiet_seconds": 2.0}
    usual |= {"log_level": "info", "log_format": "auto"}
    settings = property(lambda call: SimpleNamespace(root=Path(call.root), **usual))
    monkeypatch.setattr(Call, "settings", settings)
    return Cli(root, surgeon, capsys)

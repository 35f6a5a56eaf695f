"""`bsd set-extractable`: how its value is typed, and what people are told of it."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from bsd.doors.cli.output import say
from bsd.doors.cli.verbs import verb_command
from bsd.foundation.errors import Invalid
from bsd.foundation.layout import SessionName
from bsd.surgery.edit import Extractable, ExtractableSet

_WORDS: dict[str, bool | None] = {"true": True, "false": False, "unset": None}


class _Value(click.ParamType[Any]):
    name = "value"

    def convert(self, value: Any, _param: Any, _ctx: Any) -> Extractable:
        """Read `true`, `false`, a whole number, or `unset` (None); raises Invalid."""
        text = str(value).lower()
        if text in _WORDS:
            return _WORDS[text]
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        raise Invalid(
            f"{value!r} is no value for _extractable", hint="true, false, a number, or unset"
        )

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(word) for word in _WORDS if word.startswith(incomplete)]


def _tell(answer: ExtractableSet, _: SessionName) -> None:
    now, before = _shown(answer.extractable), _shown(answer.previous)
    say(f"Set _extractable={now} for entry {answer.entry_id} (before: {before})")


def _shown(value: bool | int | None) -> str:
    return "unset" if value is None else str(value).lower()


set_extractable = verb_command("set_extractable", _tell, types={"value": _Value()})

"""Facts of models, by their names: `models.json`, which names the source and date of each row.

A model that the file does not know has no facts: nothing is assumed about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import orjson

_FILE = Path(__file__).with_name("models.json")
_LONGEST_NAME = 128  # characters of a model's name that are searched
# How Claude Code names a model that it asks for the larger context window.
_LARGEST = "[1m]"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One row: the facts of models whose names have its pattern."""

    pattern: re.Pattern[str]
    context_windows: tuple[int, ...]  # tokens, smallest first
    source: str
    date: str  # ISO 8601, when the source said so


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The most tokens that a model takes, and the reason to say so, in words."""

    tokens: int
    reason: str


@cache
def _rows() -> tuple[ModelFacts, ...]:
    found = orjson.loads(_FILE.read_bytes())["models"]
    return tuple(
        ModelFacts(
            re.compile(row["pattern"], re.IGNORECASE),
            tuple(row["context_windows"]),
            row["source"],
            row["date"],
        )
        for row in found
    )


@lru_cache(maxsize=256)
def facts_of(model: str) -> ModelFacts | None:
    """Return the facts of a model; None if it is not known."""
    name = model[:_LONGEST_NAME]
    return next((row for row in _rows() if row.pattern.search(name)), None)


def context_limit_of(model: str, seen: int) -> ContextLimit | None:
    """Return the limit of a model's context; None if it is not known.

    Of several windows it is the smallest that holds what was seen.

    Args:
        model: its name, as a session has it.
        seen: the most tokens that were sent to it at once.
    """
    facts = facts_of(model)
    if facts is None:
        return None
    windows = facts.context_windows
    if model.lower().endswith(_LARGEST):
        windows = windows[-1:]
    fitting = [tokens for tokens in windows if tokens >= seen]
    if not fitting:
        return None
    site = facts.source.partition("/")[0]
    reason = f"by the model's name ({site}, {facts.date})"
    if others := [f"{tokens:,}" for tokens in fitting[1:]]:
        reason += f"; the model is also offered with {', '.join(others)}"
    elif len(windows) > 1:
        reason += "; more was sent than its smaller window holds"
    return ContextLimit(fitting[0], reason)

"""Facts about models, by name, from `models.json`, which gives the source and date of each row.

bsd assumes no facts about a model that is not in the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import orjson

_FILE = Path(__file__).with_name("models.json")
_LONGEST_NAME = 128  # characters of a model's name that are compared
# Suffix with which Claude Code requests the larger context window of a model.
_LARGEST = "[1m]"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A row of the file: the facts of the models whose names match the pattern."""

    pattern: re.Pattern[str]
    context_windows: tuple[int, ...]  # tokens, smallest first
    source: str
    date: str  # ISO 8601; the date of the source


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The largest context of a model in tokens, and the reason for this number in words."""

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
    """Return the facts of a model; None if the model is unknown."""
    name = model[:_LONGEST_NAME]
    return next((row for row in _rows() if row.pattern.search(name)), None)


def context_limit_of(model: str, seen: int) -> ContextLimit | None:
    """Return the limit of a model's context; None if it is unknown.

    If a model is offered with several windows, this is the smallest that fits `seen`.

    Args:
        model: the name of the model, as in a session.
        seen: the most tokens that were sent to the model in a request.
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

"""Answers of actions as JSON: for `--json`, for tools, and for what is written by hand."""

from __future__ import annotations

from typing import Any

from bsd.core.definition import Answer


def as_json(answer: Answer) -> dict[str, Any]:
    """Return an answer as a JSON object: names as other programs know them, nothing internal."""
    return answer.as_json()

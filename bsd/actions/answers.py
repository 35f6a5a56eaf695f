"""Answers of actions as JSON, those of the libraries included that are not converted yet."""

from __future__ import annotations

from typing import Any

from bsd.core import answers
from bsd.core.definition import Answer


def as_json(answer: Any) -> dict[str, Any]:
    """Return an answer as a JSON object: names as other programs know them, nothing internal."""
    return answer.as_json() if isinstance(answer, Answer) else answers.as_json(answer)

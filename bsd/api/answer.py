"""How answers look: JSON, and one form for all errors."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from bsd.foundation.documents import document
from bsd.foundation.errors import BsdError, FieldError


class Answer(JSONResponse):
    """A JSON document; lone surrogates and huge integers, which transcripts hold, included."""

    def render(self, content: Any) -> bytes:
        return document(content)


def error_document(
    message: str, hint: str | None = None, errors: tuple[FieldError, ...] = ()
) -> dict[str, Any]:
    """`{error, hint?, errors?: [{field, message}]}`."""
    document: dict[str, Any] = {"error": message}
    if hint is not None:
        document["hint"] = hint
    if errors:
        document["errors"] = [{"field": one.field, "message": one.message} for one in errors]
    return document


def error_answer(error: BsdError) -> Answer:
    """Answer with an error of ours and the status that it knows."""
    return Answer(error_document(error.message, error.hint, error.errors), error.status)

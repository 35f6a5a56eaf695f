"""How answers look: JSON, and one form for all errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from bsd.foundation.errors import BsdError, FieldError
from bsd.foundation.json_text import document

LARGEST_BODY = 1 << 20  # bytes, of a request


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


TOO_LARGE_TEXT = f"the body is larger than {LARGEST_BODY} bytes"
TOO_LARGE = Answer(error_document(TOO_LARGE_TEXT), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

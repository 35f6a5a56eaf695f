"""Conversion of pydantic's validation errors to bsd's form: a field and a sentence about it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bsd.core.errors import Invalid
from bsd.core.formatting import MINUTE, NEVER, lifetime_seconds

_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
# Replacements for messages of pydantic that name Python types.
_WORDS = {
    "tuple_type": "Input should be a valid list",
    "model_type": "Input should be a valid object",
    "dataclass_type": "Input should be a valid table",
    "dict_type": "Input should be a valid table",
    "path_type": "Input should be a valid path",
}
# Type of the error for a default that could not be computed because another field is wrong.
_FOLLOWS_FROM_ANOTHER = "default_factory_not_called"


def details_of(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors that a user can correct, in the order of the fields."""
    found = error.errors(include_url=False)
    return [detail for detail in found if detail["type"] != _FOLLOWS_FROM_ANOTHER]


def is_unknown(detail: ErrorDetails) -> bool:
    """Return True if the error is about a field that the model does not have."""
    return detail["type"] in _UNKNOWN


def reason_of(detail: ErrorDetails) -> str:
    """Return the message of an error: bsd's own validator's, else pydantic's."""
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    return _WORDS.get(detail["type"], detail["msg"])


def spelled(location: Sequence[str | int]) -> str:
    """Return the path of a value in the form `trigger_rules[0].type`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".")


def checked_age(text: str) -> str:
    """Return a duration such as `24h`, or `never`; for pydantic, raises ValueError."""
    try:
        return NEVER if lifetime_seconds(text, minimum=MINUTE) is None else text.strip()
    except Invalid as problem:
        raise ValueError(problem.message) from None

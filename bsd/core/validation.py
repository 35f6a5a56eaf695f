"""pydantic's validation errors in bsd's own form: a field, and a sentence about it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}
# Errors that pydantic words in terms of Python's types.
_WORDS = {
    "tuple_type": "Input should be a valid list",
    "model_type": "Input should be a valid object",
    "dataclass_type": "Input should be a valid table",
    "dict_type": "Input should be a valid table",
    "path_type": "Input should be a valid path",
}
# A default that is made from other fields is not made if one of those is wrong.
_FOLLOWS_FROM_ANOTHER = "default_factory_not_called"


def details_of(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors that a user can correct, in the order of the fields."""
    found = error.errors(include_url=False)
    return [detail for detail in found if detail["type"] != _FOLLOWS_FROM_ANOTHER]


def is_unknown(detail: ErrorDetails) -> bool:
    """Return whether a field is reported that the model does not have."""
    return detail["type"] in _UNKNOWN


def reason_of(detail: ErrorDetails) -> str:
    """Return the problem: the text of the validator that refused, else pydantic's."""
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    return _WORDS.get(detail["type"], detail["msg"])


def spelled(location: Sequence[str | int]) -> str:
    """Return the place of a value as JSON and TOML users write it: `trigger_rules[0].type`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".")

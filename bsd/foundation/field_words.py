"""What was wrong with a field, in our words: those of the library that checks are for programmers.

Loaded only where pydantic is anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bsd.foundation.errors import FieldError
from bsd.foundation.spelling import shown


@dataclass(frozen=True, slots=True)
class Expected:
    """Metadata of a type that no plain words can be made from: what it should have been."""

    words: str


def field_errors(
    details: Sequence[ErrorDetails],
    fields: Mapping[str, FieldInfo],
    *,
    skip: int = 0,
    missing: str = "is missing",
    unknown: str = "is not known here",
) -> tuple[FieldError, ...]:
    """One error for each bad field, in the order of the details.

    `fields` are those of the model by the names users know; `skip` steps of a path lead to them.
    """
    found: dict[str, FieldError] = {}
    for detail in details:
        steps = detail["loc"][skip:] or detail["loc"]
        name = str(steps[0]) if steps else ""
        if name not in found:
            words = {"missing": missing, "extra_forbidden": unknown}.get(detail["type"])
            if words is None:
                # Of a list or an object only the part that is wrong is at hand.
                whole = not any(isinstance(step, int) for step in steps)
                words = _must_be(detail, fields.get(name), whole=whole)
            found[name] = FieldError(name, f"{name} {words}".strip())
    return tuple(found.values())


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the names that users know."""
    own = model.model_fields
    return {**own, **{info.alias: info for info in own.values() if info.alias}}


def _must_be(detail: ErrorDetails, info: FieldInfo | None, *, whole: bool) -> str:
    reason = detail.get("ctx", {}).get("error") if detail["type"] == "value_error" else None
    if isinstance(reason, ValueError):  # one of our own
        return str(reason)
    words = f"must be {expected(info.annotation, info.metadata) if info else 'something else'}"
    return f"{words}, not {shown(detail['input'])}" if whole else words


def expected(annotation: Any, metadata: Sequence[object] = ()) -> str:
    """What a field of this type should have been: `a whole number from 0 to 100`."""
    for one in metadata:
        if isinstance(one, Expected):
            return one.words
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        added = [part for one in more for part in _unfolded(one)]
        return expected(inner, [*added, *metadata])
    if origin in {Union, UnionType}:
        kinds = [one for one in get_args(annotation) if one is not NoneType]
        return " or ".join(dict.fromkeys(expected(one, metadata) for one in kinds))
    if origin is Literal:
        return _choice([shown(one) for one in get_args(annotation)])
    if origin in {list, tuple}:
        return "a list of texts" if get_args(annotation)[:1] == (str,) else "a list"
    return _plain(annotation, metadata)


def _unfolded(one: object) -> Sequence[object]:
    return one.metadata if isinstance(one, FieldInfo) else (one,)


def _choice(words: Sequence[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} or {last}" if before else last


def _plain(kind: Any, metadata: Sequence[object]) -> str:
    if kind is bool:
        return "true or false"
    if kind in {int, float}:
        return ("a whole number" if kind is int else "a number") + _range(metadata)
    if kind is not str:
        return "an object"
    least = _of(metadata, MinLen, "min_length")
    most = _of(metadata, MaxLen, "max_length")
    if most is not None:
        return (
            f"a text of {least} to {most} characters"
            if least
            else f"a text of up to {most} characters"
        )
    return "a text that is not empty" if least else "a text"


def _range(metadata: Sequence[object]) -> str:
    least, most = _of(metadata, Ge, "ge"), _of(metadata, Le, "le")
    above, below = _of(metadata, Gt, "gt"), _of(metadata, Lt, "lt")
    if most is None and isinstance(below, int):
        most, below = below - 1, None
    if least is not None and most is not None:
        return f" from {least} to {most}"
    words = [
        f" {word} {bound}"
        for word, bound in (
            ("from", least),
            ("above", above),
            ("up to", most),
            ("below", below),
        )
        if bound is not None
    ]
    # `from 1` alone would want to be told up to what.
    return f", {least} or more" if words == [f" from {least}"] else "".join(words)


def _of(metadata: Sequence[object], kind: type, name: str) -> Any:
    return next((getattr(one, name) for one in metadata if isinstance(one, kind)), None)

"""What verbs take and answer as pydantic knows it, made from their dataclasses.

For OpenAPI, MCP and the checking of what comes in; and what was wrong with a field, in our words:
those of the library are for programmers. Loaded only where pydantic is anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, create_model
from pydantic import Field as Described
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bsd.core.definition import (
    UNSAID,
    Argument,
    Contract,
    Unsaid,
    arguments_of,
    schema_name,
    told_fields,
)
from bsd.core.errors import FieldError, Invalid
from bsd.core.formatting import shown

_Model = TypeVar("_Model", bound=BaseModel)


class _Taken(BaseModel):
    @classmethod
    def read(cls, found: Mapping[str, Any]) -> dict[str, Any]:
        """What was said, of what may be said; raises Invalid that names every bad field.

        What was left out is not there: the verb's own arguments know what it is then.
        """
        try:
            said = cls.model_validate(found)
        except ValidationError as problem:
            errors = field_errors(problem.errors(include_url=False), fields_of(cls))
        else:
            return {name: getattr(said, name) for name in said.model_fields_set}
        raise Invalid("; ".join(one.message for one in errors), errors=errors)


class InQuery(_Taken):
    """What may stand in a query, as text; what else stands there is passed over."""

    model_config = ConfigDict(populate_by_name=False)


class InBody(_Taken):
    """What may stand in a body, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)


class Document(BaseModel):
    """An answer as other programs are told of it; later versions may add to it."""

    model_config = ConfigDict(extra="allow")


_models: dict[type, type[Document]] = {}  # of answers: one schema may name another


def answer_model(kind: Any) -> type[Document]:
    """The model of an answer that is a dataclass, by the same name."""
    if kind in _models:
        return _models[kind]
    model: type[Document] = create_model(schema_name(kind), __base__=Document, **_members(kind))
    model.__doc__ = kind.__doc__
    _models[kind] = model
    return model


def _members(kind: Any, *, may_lack: bool = False) -> dict[str, Any]:
    """The members of an answer by name; with `may_lack` none of them need be there."""
    hints = get_type_hints(kind)
    members: dict[str, Any] = {}
    for one, said in told_fields(kind):
        hint = hints[one.name]
        if said.inline:
            inner = next(part for part in get_args(hint) or (hint,) if part is not NoneType)
            known = _members(inner, may_lack=may_lack or NoneType in get_args(hint))
            members |= {name: told for name, told in known.items() if name not in members}
        else:
            name = said.name or one.name
            members[name.lstrip("_")] = _told(hint, said, name, may_lack=may_lack)
    return members


def _told(annotation: Any, said: Contract, name: str, *, may_lack: bool = False) -> tuple[Any, Any]:
    """The type and the pydantic field of a member."""
    kind, description = _told_type(annotation), said.doc or None
    # pydantic knows no member with an underscore before its name, but by an alias.
    alias = name if name.startswith("_") else None
    if not (said.omit or may_lack or Unsaid in get_args(annotation)):
        return kind, Described(alias=alias, description=description)
    # Left out where it says nothing, it is never null, and no default could be told.
    if said.omit and get_origin(kind) is Union:
        some = [one for one in get_args(kind) if one is not NoneType]
        kind = Union[tuple(some)]  # noqa: UP007 - of any number
    return kind, Described(default_factory=lambda: None, alias=alias, description=description)


def _told_type(annotation: Any) -> Any:
    """The type as it is in JSON."""
    if isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return Literal[tuple(one.value for one in annotation)]
        return answer_model(annotation) if is_dataclass(annotation) else annotation
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return list[_told_type(inside[0])]  # type: ignore[misc]
    if origin in {list, dict} or (isinstance(origin, type) and issubclass(origin, Mapping)):
        kind: Any = list if origin is list else dict
        return kind[tuple(map(_told_type, inside))]
    if origin in {Union, UnionType}:
        return Union[tuple(_told_type(one) for one in inside if one is not Unsaid)]  # noqa: UP007 - of any number
    return annotation


def arguments_model(
    kind: Any,
    base: type[_Model],
    *,
    names: Collection[str] | None = None,
    door: str = "",
    reader: Callable[[Any], Any] = lambda _: None,
) -> type[_Model]:
    """The model of what a door takes of a verb's arguments: all, or these `names` in their order.

    A member's `alias` is what the argument is called in this door, if not as in the verb. `reader`
    knows by the type of an argument how a door reads it that takes more than that type.
    """
    hints, known = get_type_hints(kind), arguments_of(kind)
    members: dict[str, Any] = {}
    for name in known if names is None else names:
        one, said = known[name]
        more: list[Any] = [Expected(said.expected)] if said.expected else []
        if (read := reader(hints[name])) is not None:
            more.append(BeforeValidator(read))
        default = None if one.default is UNSAID else one.default
        described = Described(
            ... if default is MISSING else default,
            alias=(said.names or {}).get(door),
            description=said.doc or None,
            json_schema_extra=_schema_extra(said),
        )
        taken = taken_type(hints[name], said, empty_is_none=read is not None)
        members[name] = (Annotated[(taken, *more)] if more else taken, described)
    model: type[_Model] = create_model(kind.__name__, __base__=base, **members)
    model.__doc__ = kind.__doc__
    return model


def _schema_extra(said: Argument) -> dict[str, Any] | None:
    extra = dict(said.schema or {})
    if said.choices:
        extra["enum"] = list(said.choices)
    return extra or None


def taken_type(annotation: Any, said: Argument, *, empty_is_none: bool = False) -> Any:
    """The type as it comes in JSON, within its bounds."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        kinds = [one for one in inside if one is not Unsaid]
        return Union[tuple(taken_type(one, said, empty_is_none=empty_is_none) for one in kinds)]  # noqa: UP007 - any number
    if annotation in {int, float} and (said.least, said.most) != (None, None):
        return Annotated[annotation, Described(ge=said.least, le=said.most)]
    if annotation is str and (said.least, said.most) != (None, None):
        return Annotated[str, Described(min_length=said.least, max_length=said.most)]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        some: Any = list[inside[0]]  # type: ignore[valid-type]
        least = None if said.schema or empty_is_none else said.least
        return some if least is None else Annotated[some, Described(min_length=least)]
    return annotation


# --- what was wrong with a field ---


@dataclass(frozen=True, slots=True)
class Expected:
    """Metadata of a type that no plain words can be made from: what it should have been."""

    words: str


def field_errors(
    details: Sequence[ErrorDetails],
    fields: Mapping[str, FieldInfo],
    *,
    missing: str = "is missing",
    unknown: str = "is not known here",
) -> tuple[FieldError, ...]:
    """One error for each bad field, in the order of the details.

    `fields` are those of the model by the names users know.
    """
    found: dict[str, FieldError] = {}
    for detail in details:
        steps = detail["loc"]
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

"""What verbs take and answer as pydantic knows it, made from their dataclasses.

For OpenAPI, MCP and the checking of what comes in. Loaded only where pydantic is anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, create_model
from pydantic import Field as Described

from bsd.foundation.answers import UNSAID, Contract, Unsaid, schema_name, told_fields
from bsd.foundation.definition import Argument, arguments_of
from bsd.foundation.field_words import Expected

_Model = TypeVar("_Model", bound=BaseModel)


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

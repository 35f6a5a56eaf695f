"""A verb as data: what it takes and answers, where it is reached, and its words, said once.

Arguments and answer are dataclasses (`argument` describes a field of the one, `contract` of the
other: its fields are what every door tells, in their order, by their names, but for those that are
`INTERNAL`). The doors are made from that: command line, HTTP route with its OpenAPI, tools of
agents. What a verb of sessions is beyond that says `bsd.actions.verb`; a library (memory,
workspaces) has verbs that are done with its own handle: `LibraryVerb`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, get_type_hints

from pydantic.fields import FieldInfo

from bsd.core.answers import as_json

# --- what it answers ---


_CONTRACT = "contract"


class Unsaid(Enum):
    """The value of a field that is not there: null would say something else."""

    UNSAID = "unsaid"


UNSAID = Unsaid.UNSAID


@dataclass(frozen=True, slots=True)
class Contract:
    """What doors know of a field beside its name and type."""

    doc: str = ""
    name: str | None = None  # as other programs know it, if that is no name of ours
    omit: bool = False  # left out where it says nothing: None, or empty
    by: Callable[[Any], Any] | None = None  # makes it from the other fields
    inline: bool = False  # an answer whose members stand among ours, if it is there
    internal: bool = False  # for whoever asked within bsd: no door tells it


def contract(
    doc: str = "",
    *,
    name: str | None = None,
    omit: bool = False,
    by: Callable[[Any], Any] | None = None,
    inline: bool = False,
) -> Mapping[str, Any]:
    """Metadata of a dataclass field; one that is made `by` a function wants `init=False`, too."""
    return {_CONTRACT: Contract(doc, name, omit, by, inline)}


INTERNAL: Mapping[str, Any] = {_CONTRACT: Contract(internal=True)}
_PLAIN = Contract()


def contract_of(one: Field[Any], hint: Any) -> Contract:
    """What is said of a field, by its metadata or the marks beside its type."""
    said: Contract = one.metadata.get(_CONTRACT, _PLAIN)
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, FieldInfo):
            said = Contract(
                mark.description or said.doc,
                mark.serialization_alias or said.name,
                omit=said.omit or mark.exclude_if is not None,
                internal=said.internal or bool(mark.exclude),
            )
    return said


@cache
def told_fields(kind: Any) -> tuple[tuple[Field[Any], Contract], ...]:
    """The fields of a dataclass that doors tell, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    found = ((one, contract_of(one, hints[one.name])) for one in fields(kind))
    return tuple((one, said) for one, said in found if not said.internal)


@cache
def _made_fields(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields that are made from others, and how."""
    return tuple((one.name, said.by) for one, said in told_fields(kind) if said.by is not None)


def schema_name(kind: type) -> str:
    """What OpenAPI calls an answer, where that is not the name of its class."""
    return str(getattr(kind, "schema_name", kind.__name__))


class Answer:
    """What a planner or query answers; its subclasses are dataclasses."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, make in _made_fields(kind):
            object.__setattr__(self, name, make(self))

    def as_json(self) -> dict[str, Any]:
        """The fields of the contract, as JSON has them."""
        document: dict[str, Any] = {}
        kind: Any = type(self)
        for one, said in told_fields(kind):
            value = getattr(self, one.name)
            if said.inline:
                document |= {} if value is None else _plain(value)
            elif not _is_left_out(value, said):
                document[said.name or one.name] = _plain(value)
        return document


def _is_left_out(value: Any, said: Contract) -> bool:
    return value is UNSAID or (said.omit and (value is None or value in ((), [], {})))


def _plain(value: Any) -> Any:
    if isinstance(value, Answer):
        return value.as_json()
    if is_dataclass(value):
        return as_json(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value


# --- what a verb takes ---


_KEY = "argument"


@dataclass(frozen=True, slots=True)
class Argument:
    """What doors know of an argument beside its name and type."""

    doc: str = ""
    metavar: str | None = None  # for people; None: it stands for itself
    positional: bool = False  # on the command line; else it is an option
    least: int | None = None  # of a number; of a text or list: how long
    most: int | None = None
    choices: tuple[str, ...] = ()
    usual: Any = None  # on the command line, where nobody says otherwise
    expected: str | None = None  # in words, where its type alone does not say it
    names: Mapping[str, str] | None = None  # door → what it is called there, if not as here
    query: bool = False  # HTTP: it stands in the query, not in the body
    people_only: bool = False  # said at a terminal; HTTP and tools do not take it
    by_door: bool = False  # known by the door that is asked; no caller says it
    schema: Mapping[str, Any] | None = None  # JSON schema, where the type does not say it all


def argument(doc: str = "", **said: Any) -> Mapping[str, Any]:
    """Metadata of a field of a verb's arguments; see `Argument`."""
    return {_KEY: Argument(doc, **said)}


def arguments_of(kind: Any) -> dict[str, tuple[Field[Any], Argument]]:
    """The arguments that a dataclass has, by name."""
    return {one.name: (one, one.metadata.get(_KEY, Argument())) for one in fields(kind)}


@dataclass(frozen=True, slots=True)
class Body:
    """What HTTP takes in a body that is read in a way of its own.

    `read` is given the bytes, and where the body holds `settings`, the JSON object; it returns
    arguments by name, and raises Invalid.
    """

    read: Callable[[Any], Mapping[str, Any]]
    schema: Mapping[str, Any] | None = None
    settings: tuple[str, ...] = ()  # names; then the schema is known from them
    required: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """Where HTTP finds a verb. What stands in braces in the path is of the session, or an argument.

    The arguments of a GET stand in its query. `name` is what OpenAPI calls it, `doc` what it says.
    """

    method: str
    path: str
    name: str
    doc: str
    tag: str = "sessions"
    hint: str | None = None  # what to try, for whoever sends what it does not take
    body: Body | None = None  # None: its members are the arguments that stand nowhere else
    needs_body: bool = False  # though no single one of them has to be there


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of agents, as a model is told of it."""

    name: str
    title: str
    description: str
    destroys: bool = False  # what it takes away a person has to bring back
    pictures: bool = False  # it gives texts and pictures, so that its answer is not JSON alone
    lists: bool = False  # its answer may fill a page
    takes: tuple[str, ...] = ()  # of the verb's arguments, in this order; empty: all


_H = TypeVar("_H")
_A = TypeVar("_A")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(Generic[_A, _R]):
    """What doors are told of a verb, whoever does it and how."""

    name: str
    arguments: type[_A]
    answer: type[_R]
    changes: bool = False  # it may change something
    route: Route | None = None
    tools: tuple[Tool, ...] = ()
    about: str = ""  # what people are told of it
    examples: tuple[str, ...] = ()  # command lines


def _only_looks(asked: object) -> bool:
    return bool(getattr(asked, "dry_run", False) or not getattr(asked, "refresh", True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryVerb(Definition[_A, _R], Generic[_H, _A, _R]):
    """A verb that is done with one handle, of the memory or of workspaces."""

    act: Callable[[_H, _A], _R]
    only_looks: Callable[[_A], bool] = _only_looks  # although others of its calls change something

    def will_change(self, asked: _A) -> bool:
        """Whether it may change something, done with these arguments."""
        return self.changes and not self.only_looks(asked)


@dataclass(frozen=True, slots=True)
class Library(Generic[_H]):
    """What all verbs of a library have in common: their handle, and where HTTP finds them."""

    handle: type[_H]
    name: str

    def verb(
        self,
        name: str,
        arguments: type[_A],
        answer: type[_R],
        act: Callable[[_H, _A], _R],
        way: str,
        doc: str,
        *,
        about: str = "",
    ) -> LibraryVerb[_H, _A, _R]:
        """`way` is how HTTP comes to it, below /api/NAME; a GET changes nothing.

        People are told the same as in the API, unless `about` says it in other words.
        """
        method, _, below = way.partition(" ")
        return LibraryVerb(
            name=name,
            arguments=arguments,
            answer=answer,
            act=act,
            changes=method != "GET",
            route=Route(method, f"/api/{self.name}{below}", name, doc, tag=self.name),
            about=about or doc,
        )

"""The lowest level of the log (SP-09): a function was entered, and for which session."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from os import PathLike
from types import FunctionType
from typing import Any, TypeVar, cast

from bsd.foundation.layout import SessionName
from bsd.foundation.logs import Log

_T = TypeVar("_T", bound=Callable[..., Any])


def traced(log: Log, *, but: tuple[str, ...] = ()) -> Callable[[_T], _T]:
    """Let a function, or all public methods of a class, say at trace that they begin.

    `but` names methods that are called all the time. Of the arguments, sessions, paths and numbers
    are told: what else there is may be somebody's text. Below trace this costs one comparison.
    """

    def decorate(what: _T) -> _T:
        if not isinstance(what, type):
            return cast("_T", _telling(log, cast("Callable[..., Any]", what)))
        for name, member in list(vars(what).items()):
            if isinstance(member, FunctionType) and not name.startswith("_") and name not in but:
                setattr(what, name, _telling(log, member))
        return what

    return decorate


def _telling(log: Log, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def told(*args: Any, **named: Any) -> Any:
        if log.is_enabled("trace"):
            about = ", ".join(filter(None, map(_told_of, (*args, *named.values()))))
            log.trace(": ".join(filter(None, [function.__qualname__, about])))
        return function(*args, **named)

    return told


def _told_of(value: object) -> str:
    """What may be told of an argument: empty, if that could be somebody's text."""
    if isinstance(value, SessionName | PathLike | int | float):
        return str(value)
    name = getattr(value, "name", None)
    return str(name) if isinstance(name, SessionName) else ""

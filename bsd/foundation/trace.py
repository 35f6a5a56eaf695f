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
            about = [str(one) for one in (*args, *named.values()) if _may_be_told(one)]
            log.trace(": ".join([function.__qualname__, *filter(None, [", ".join(about)])]))
        return function(*args, **named)

    return told


def _may_be_told(value: object) -> bool:
    return isinstance(value, SessionName | PathLike | int | float)

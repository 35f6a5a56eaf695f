"""What somebody typed, as we show it to them, and what they probably meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping

_NEAR = 0.7
_SHOWN = 40  # characters of a bad value


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of `known` looks very much like `word`, else nothing."""
    near = difflib.get_close_matches(word.casefold(), known, n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the one of `known` (at least one) that looks most like `word`."""
    folded = {name.casefold(): name for name in known}
    return folded[difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.0)[0]]


def shown(value: object) -> str:
    """A bad value as its user may have written it, cut if it is long."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        return f"'{text}'" if text.isprintable() else ascii(text)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    try:
        return json.dumps(value)[:_SHOWN]
    except (TypeError, ValueError):
        return "that"

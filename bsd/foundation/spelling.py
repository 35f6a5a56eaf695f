"""What somebody probably meant to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.7


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of `known` looks very much like `word`, else nothing."""
    near = difflib.get_close_matches(word.casefold(), known, n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the one of `known` (at least one) that looks most like `word`."""
    folded = {name.casefold(): name for name in known}
    return folded[difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.0)[0]]

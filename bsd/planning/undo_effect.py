"""The effect of undoing operations, in numbers and in sentences for people.

Pure data: no input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.core.formatting import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoEffect:
    """The changes that an undo makes.

    Sizes are bytes of the session file; tokens are an estimate.
    """

    operations: Annotated[
        tuple[int, ...], Field(description="Numbers of the undone operations, newest first")
    ]
    sessions: int = 1
    entries: int = 0
    values_back: Annotated[int, Field(description="Extracted values that come back")] = 0
    values_out: Annotated[int, Field(description="Values that leave the session again")] = 0
    rewritten: Annotated[
        int, Field(description="Entries whose present text is replaced by the former text")
    ] = 0
    lines_back: Annotated[int, Field(description="Removed entries that come back")] = 0
    lines_out: Annotated[int, Field(description="Added entries that are removed")] = 0
    stays: Annotated[int, Field(description="Entries that were restored since, and stay")] = 0
    gone: Annotated[int, Field(description="Entries that another program has removed")] = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tokens: Annotated[
        int,
        Field(description="More for a model that continues the session; negative: fewer"),
    ] = 0
    cache_warm_until: Annotated[
        str | None,
        Field(
            description="Until then the provider's prompt cache holds the text that would change"
        ),
        OMIT_EMPTY,
    ] = None
    consequence: Annotated[tuple[str, ...], Field(description="The effect in sentences")] = field(
        init=False, default=()
    )

    def __post_init__(self) -> None:
        """Fill `consequence`."""
        object.__setattr__(self, "consequence", tuple(_sentences(self)))


def sum_of(effects: Iterable[UndoEffect]) -> UndoEffect:
    """Add up the effects on several sessions. Numbers of operations are left out."""
    effects = list(effects)

    def total(member: str) -> int:
        return sum(getattr(effect, member) for effect in effects)

    return UndoEffect(
        operations=(),
        sessions=len(effects),
        entries=total("entries"),
        values_back=total("values_back"),
        values_out=total("values_out"),
        rewritten=total("rewritten"),
        lines_back=total("lines_back"),
        lines_out=total("lines_out"),
        stays=total("stays"),
        gone=total("gone"),
        bytes_before=total("bytes_before"),
        bytes_after=total("bytes_after"),
        tokens=total("tokens"),
    )


def _sentences(effect: UndoEffect) -> Iterator[str]:
    where = "the session" if effect.sessions == 1 else "their sessions"
    moves = []
    if effect.values_back:
        moves.append(f"{_said(effect.values_back, 'value', 'comes', 'come')} back into {where}")
    if effect.values_out:
        moves.append(f"{_said(effect.values_out, 'value', 'leaves', 'leave')} {where} again")
    if effect.rewritten:
        become = _said(effect.rewritten, "entry", "becomes what it was", "become what they were")
        moves.append(f"{become} before, and the present text is lost from {where}")
    if effect.lines_back:
        come = _said(
            effect.lines_back,
            "entry",
            "that had been removed comes",
            "that had been removed come",
        )
        moves.append(f"{come} back")
    if effect.lines_out:
        go = _said(effect.lines_out, "entry", "that had been added goes", "that had been added go")
        moves.append(f"{go} again")
    yield f"{', '.join(moves)}; {_growth(effect)}." if moves else "Nothing changes."
    if effect.stays:
        stay = _said(effect.stays, "entry", "was", "were")
        yield f"{stay} restored meanwhile and {'stays' if effect.stays == 1 else 'stay'}."
    if effect.gone:
        went = _said(effect.gone, "entry", "was", "were")
        yield (
            f"{went} removed by another program since, and "
            f"{'does' if effect.gone == 1 else 'do'} not come back."
        )
    if effect.tokens:
        number = _rounded(abs(effect.tokens))
        more = "more" if effect.tokens > 0 else "fewer"
        resumed = (
            "A model that continues the session reads"
            if effect.sessions == 1
            else "Models that continue the sessions read"
        )
        yield f"{resumed} about {number} tokens {more}."
    if effect.cache_warm_until:
        yield (
            f"Its provider's prompt cache is warm until {effect.cache_warm_until[11:16]} UTC: the "
            "next request pays again for everything after the first change."
        )


def _growth(effect: UndoEffect) -> str:
    more = effect.bytes_after - effect.bytes_before
    one = effect.sessions == 1
    if more == 0:
        return "the size stays the same" if one else "the sizes stay the same"
    if more > 0:
        return f"{'it grows' if one else 'they grow'} by {format_size(more)}"
    return f"{'it shrinks' if one else 'they shrink'} by {format_size(-more)}"


def _rounded(tokens: int) -> str:
    """Write an estimate without more digits than it deserves."""
    return f"{tokens / 1000:,.0f},000" if tokens >= 10_000 else f"{tokens:,}"


def _said(count: int, noun: str, of_one: str, of_many: str) -> str:
    """Write a number, its noun and the rest of a phrase: `1 value comes`, `2 entries come`."""
    if count == 1:
        return f"1 {noun} {of_one}"
    many = "entries" if noun == "entry" else f"{noun}s"
    return f"{count:,} {many} {of_many}"

"""What undoing operations changes in a session, in numbers and in words for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from bsd.core.answers import OMIT_EMPTY
from bsd.core.formatting import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoEffect:
    """What undoing changes. Sizes are bytes of the session file; tokens are an estimate."""

    operations: Annotated[tuple[int, ...], Field(description="That are undone, the newest first")]
    entries: int = 0
    values_back: Annotated[int, Field(description="Extracted values that come back")] = 0
    values_out: Annotated[int, Field(description="Values that leave the session again")] = 0
    rewritten: Annotated[
        int, Field(description="Entries whose present text is replaced by the one before")
    ] = 0
    lines_back: Annotated[int, Field(description="Entries that were taken out, and come back")] = 0
    lines_out: Annotated[int, Field(description="Entries that were put in, and go")] = 0
    stays: Annotated[int, Field(description="Entries that were restored since, and stay")] = 0
    gone: Annotated[int, Field(description="Entries that another program has thrown away")] = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tokens: Annotated[
        int,
        Field(description="More that a model reads that goes on with the session; < 0: fewer"),
    ] = 0
    cache_warm_until: Annotated[
        str | None,
        Field(description="Until then the provider's prompt cache holds what would change"),
        OMIT_EMPTY,
    ] = None
    consequence: Annotated[tuple[str, ...], Field(description="The same in sentences")] = field(
        init=False, default=()
    )

    def __post_init__(self) -> None:
        """Say it in words."""
        object.__setattr__(self, "consequence", tuple(_sentences(self)))


def sum_of(effects: Iterable[UndoEffect]) -> UndoEffect:
    """Add up the effects on several sessions; the numbers of operations are left out."""
    effects = list(effects)

    def total(member: str) -> int:
        return sum(getattr(effect, member) for effect in effects)

    return UndoEffect(
        operations=(),
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
    moves = []
    if effect.values_back:
        comes = "comes" if effect.values_back == 1 else "come"
        moves.append(f"{_counted(effect.values_back, 'value')} {comes} back into the session")
    if effect.values_out:
        leaves = "leaves" if effect.values_out == 1 else "leave"
        moves.append(f"{_counted(effect.values_out, 'value')} {leaves} the session again")
    if effect.rewritten:
        entries = _counted(effect.rewritten, "entry", "entries")
        become = "becomes what it was" if effect.rewritten == 1 else "become what they were"
        moves.append(f"{entries} {become} before, and the present text is lost from the session")
    if effect.lines_back:
        entries = _counted(effect.lines_back, "entry", "entries")
        moves.append(f"{entries} that had been taken out {_verb(effect.lines_back, 'come')} back")
    if effect.lines_out:
        entries = _counted(effect.lines_out, "entry", "entries")
        moves.append(f"{entries} that had been put in {_verb(effect.lines_out, 'go')} again")
    if moves:
        yield f"{', '.join(moves)}; {_growth(effect)}."
    else:
        yield "Nothing changes."
    if effect.stays:
        entries = _counted(effect.stays, "entry", "entries")
        stay = "was restored meanwhile and stays" if effect.stays == 1 else (
            "were restored meanwhile and stay"
        )
        yield f"{entries} {stay}."
    if effect.gone:
        entries = _counted(effect.gone, "entry", "entries")
        was = "was" if effect.gone == 1 else "were"
        back = "does" if effect.gone == 1 else "do"
        yield f"{entries} {was} thrown away by another program since, and {back} not come back."
    if effect.tokens:
        more = "more" if effect.tokens > 0 else "fewer"
        number = _rounded(abs(effect.tokens))
        yield f"A model that goes on with the session reads about {number} tokens {more}."
    if effect.cache_warm_until:
        yield (
            f"Its provider's prompt cache is warm until {effect.cache_warm_until[:16]}Z: the next "
            "request pays anew for all that follows the first change."
        )


def _growth(effect: UndoEffect) -> str:
    more = effect.bytes_after - effect.bytes_before
    if more == 0:
        return "the size stays the same"
    return f"it {'grows' if more > 0 else 'shrinks'} by {format_size(abs(more))}"


def _rounded(tokens: int) -> str:
    """An estimate without figures that it cannot have."""
    return f"{tokens / 1000:,.0f},000" if tokens >= 10_000 else f"{tokens:,}"


def _verb(count: int, verb: str) -> str:
    third = "goes" if verb == "go" else f"{verb}s"
    return third if count == 1 else verb


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"

"""Restore for agents: returns the text of an entry at once, and restores it inline if possible.

The session of the calling agent is in use while the agent waits for the answer. So the text is
returned first, from the store, and `inline` in the answer says when the session has the value
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import ReadHeld, read_held
from bsd.actions.restore import restore
from bsd.core.answers import OMIT_EMPTY
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Busy, Conflict, LeftAlone, Paused
from bsd.core.layout import Layout, SessionName
from bsd.daemon.instance import is_running
from bsd.planning.restore import Restored
from bsd.transcripts.agents.page_size import OTHERS, PageSize
from bsd.transcripts.agents.programs import program_of


class Inline(StrEnum):
    """When a requested value is in its session again."""

    NOW = "now"
    UNDER_WAY = "under way"  # the commit takes longer than an answer may
    AFTER_THE_TURN = "after the turn"  # the daemon will find the call in the transcript
    NOT_NOW = "not now"
    NEVER = "not in this program"  # not while the program runs


@dataclass(slots=True, kw_only=True)
class RestoredText(Restored):
    """Answer of `restore` to an agent: the restored values, and the first page of their texts."""

    inline: Annotated[Inline | None, OMIT_EMPTY] = None
    note: Annotated[str | None, OMIT_EMPTY] = None  # the meaning of `inline`, and a hint
    texts: dict[str, str] = field(default_factory=dict)
    pictures: Annotated[dict[str, dict[str, str]], OMIT_EMPTY] = field(default_factory=dict)
    characters_left: Annotated[int | None, OMIT_EMPTY] = None
    next: Annotated[dict[str, Any], OMIT_EMPTY] = field(default_factory=dict)
    beside: Annotated[dict[str, str], OMIT_EMPTY] = field(default_factory=dict)


def restore_with_text(
    context: ActionContext,
    session: SessionName,
    entry: str,
    keys: Sequence[str] | None = None,
    *,
    inline: bool | None = None,
    offset: int = 0,
    size: PageSize = OTHERS,
) -> RestoredText:
    """Return the text of an entry, and restore its values inline if the session is idle.

    Before it restores the values, it passes the text to `context.early_answer`.

    Args:
        keys: only these values, by path or by a segment of the path; None for all.
        inline: False: only return the text. True: if the session is in use, the daemon restores the
            values after the turn, and the answer says so.
        offset: characters of the text on earlier pages; if not 0, only the text is returned.

    Raises:
        NotFound: the session or entry does not exist.
        Conflict: the entry has no extracted values.
        Invalid: a key is not an extracted value, or the offset is beyond the end.
    """
    held = context.query(read_held, session, entry, keys, offset=offset, size=size)
    if offset:
        return _text_only(held, Inline.NOT_NOW, "Pages after the first are only read.")
    if held.read_only is not None:
        note = f"The text is only here: the session is never changed, {held.read_only}."
        return _text_only(held, Inline.NEVER, note)
    if not held.is_away:
        return _restore_nothing(context, session, entry, keys)
    if inline is False:
        return _text_only(held, Inline.NOT_NOW, "The text is only in this answer, as requested.")
    note = "The value is being restored, which takes time."
    context.early_answer(_text_only(held, Inline.UNDER_WAY, note))
    try:
        restored = context.run(restore, session, entry, keys)
    except BsdError as problem:
        later = inline is True
        becomes = _what_becomes(problem, context.layout, session, entry, later=later)
        return _text_only(held, *becomes)
    page = _page_of(held)
    page["unavailable"] = restored.unavailable or held.unavailable
    return _with_text(restored, page, Inline.NOW if restored.restored else Inline.NOT_NOW)


def _restore_nothing(
    context: ActionContext, session: SessionName, entry: str, keys: Sequence[str] | None
) -> RestoredText:
    """Raise Conflict for an entry without extracted values; the hint says how to read its text.

    Returns only if a value has been extracted in the meantime; it is then restored.
    """
    try:
        return _with_text(context.run(restore, session, entry, keys), {})
    except Busy:
        problem = Conflict("Entry exists but has no extracted content")
    except Conflict as conflict:
        problem = conflict
    problem.hint = f"read_extracted with entry {entry} returns its present text"
    raise problem


def explain_busy(busy: Busy, layout: Layout, session: SessionName) -> Busy:
    """Set the hint of the error: what happens to a call whose session is in use."""
    if isinstance(busy, Paused):
        return busy
    if program_of(layout, session.agent).uncallable:
        busy.hint = (
            "the call is not carried out, since its program keeps the session in use; "
            "try again once the session is closed"
        )
    elif will_carry_out(layout):
        busy.hint = (
            "do not repeat the call: in an agent's own session the daemon carries it out when the "
            "turn is over; for another session, try again later"
        )
    else:
        busy.hint = "the call is not carried out, and no bsd daemon runs to do it later: try again"
    return busy


def will_carry_out(layout: Layout) -> bool:
    """Return True if a running daemon carries out calls that it finds in transcripts."""
    return is_running(layout) and ConfigService(layout.config_file, create=False).current.enabled


def _what_becomes(
    problem: BsdError, layout: Layout, session: SessionName, entry: str, *, later: bool
) -> tuple[Inline, str]:
    """Return when values that could not be restored now will be restored, and a note about it.

    Args:
        later: the agent wants the values to be restored after its turn.
    """
    by_hand = f"`bsd restore {session} {entry}`"
    if isinstance(problem, LeftAlone):
        return Inline.NEVER, f"The text is only here: the session is never changed, {problem}."
    if not isinstance(problem, Busy):
        return Inline.NOT_NOW, f"It was not put back: {problem.message}."
    if program_of(layout, session.agent).uncallable:
        return Inline.NEVER, (
            "The text is only here: while its program is at work, the session is not changed."
            f" {by_hand} puts it back once that is closed."
        )
    if not will_carry_out(layout):
        return Inline.NOT_NOW, (
            "The text is only here: the session is in use, and no bsd daemon runs that could put it"
            f" back after the turn. {by_hand} does, once the session is at rest."
        )
    if not later:
        return Inline.NOT_NOW, (
            "The text is only here: the session is in use. `inline: true` has it put back as well,"
            " when the turn is over."
        )
    return Inline.AFTER_THE_TURN, (
        f"If this is {session}, it is put back when the turn is over, and this call is tidied away."
    )


def _text_only(held: ReadHeld, inline: Inline, note: str) -> RestoredText:
    """Return the answer for values that were not restored."""
    return RestoredText(entry_id=held.entry_id, inline=inline, note=note, **_page_of(held))


def _with_text(
    restored: Restored, page: dict[str, Any], inline: Inline | None = None
) -> RestoredText:
    members = {one.name: getattr(restored, one.name) for one in fields(restored)}
    return RestoredText(**{**members, **page, "inline": inline})


def _page_of(held: ReadHeld) -> dict[str, Any]:
    return {name: getattr(held, name) for name in _PAGE}


_PAGE = ("texts", "pictures", "characters_left", "next", "beside", "unavailable")

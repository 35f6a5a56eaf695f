"""What `restore` and `restore_remote` do out of band: the text at once, and inline if that can be.

The text comes first, and whoever is using the session: an agent's own session is in use while it
waits for its answer. What becomes of the rest is said as it is (`inline`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from bsd.actions.context import ActionContext
from bsd.actions.read_extracted import BESIDE, ReadHeld, read_held
from bsd.actions.restore import restore
from bsd.actions.verb import Tool, Verb, argument
from bsd.actions.verbs import (
    OFFSET,
    PAGE_SIZE,
    READ_EXTRACTED,
    RESTORE,
    ReadExtracted,
    Restore,
)
from bsd.core.definition import contract
from bsd.core.errors import BsdError, Busy, Conflict, LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.core.pruning_config import ConfigService
from bsd.daemon.instance import is_running
from bsd.planning.restore import Restored
from bsd.transcripts.agents.page_size import OTHERS, PageSize
from bsd.transcripts.agents.programs import program_of


@dataclass(frozen=True, slots=True)
class RestoreInline(Restore):
    """What this door adds: texts come a page at a time, and inline if that can be.

    `inline`: False only gives the text; True also has it put back later, where that can be.
    """

    inline: bool | None = field(
        default=None,
        metadata=argument(
            "true: put it back inline as well, also if that must wait until your turn is over; "
            "false: only give the text."
        ),
    )
    offset: int = field(default=0, metadata=OFFSET)
    size: PageSize = field(default=OTHERS, metadata=PAGE_SIZE)

    def reading(self) -> ReadExtracted:
        """What this asks for, where the text is only read."""
        return ReadExtracted(self.entry, self.keys, self.offset, self.size)


class Inline(StrEnum):
    """When a value that was asked for stands in its session again."""

    NOW = "now"
    UNDER_WAY = "under way"  # it takes longer than an answer may
    AFTER_THE_TURN = "after the turn"  # the daemon carries the call out
    NOT_NOW = "not now"
    NEVER = "not in this program"  # not while it is at work


@dataclass(slots=True, kw_only=True)
class RestoredText(Restored):
    """What became of an entry's values, and their text."""

    inline: Inline | None = field(default=None, metadata=contract(omit=True))
    note: str | None = field(
        default=None, metadata=contract("What becomes of it inline, in words", omit=True)
    )
    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, dict[str, str]] = field(
        default_factory=dict, metadata=contract("media_type and data, by key", omit=True)
    )
    characters_left: int | None = field(default=None, metadata=contract(omit=True))
    next: dict[str, Any] = field(default_factory=dict, metadata=contract(omit=True))
    beside: dict[str, str] = field(default_factory=dict, metadata=BESIDE)


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
    """Put an entry's values back if the session is idle; the answer has their text in any case.

    The context is given an early answer, which is true while they are being put back.

    Args:
        entry, keys, offset, size: as `read_extracted` takes them.
        inline: False only gives the text; True also has it put back later, where that can be.

    Raises:
        NotFound: there is no such session or entry.
        Conflict: nothing of the entry is extracted.
        Invalid: a key names no value, or the offset is behind the end.
    """
    found = context.query(read_held, session, entry, keys, offset=offset, size=size)
    if offset:  # a caller that reads on has had the first page, and with it what else was asked
        return _text_only(found, Inline.NOT_NOW, "What follows the first page is only read.")
    if not found.is_away:
        return _refused(context, session, entry, keys)
    if inline is False:
        return _text_only(found, Inline.NOT_NOW, "The text is only here, as was asked for.")
    under_way = "It is being put back, which takes time."
    context.early_answer(_text_only(found, Inline.UNDER_WAY, under_way))
    try:
        answer = context.run(restore, session, entry, keys)
    except BsdError as problem:
        becomes = _what_becomes(problem, entry, session, context.layout, later=bool(inline))
        return _text_only(found, *becomes)
    page = _page_of(found)
    lost = answer.unavailable or page["unavailable"]
    now = Inline.NOW if answer.restored else Inline.NOT_NOW
    return _with_text(answer, **{**page, "unavailable": lost, "inline": now})


def _with_text(answer: Restored, **more: Any) -> RestoredText:
    known = {one.name: getattr(answer, one.name) for one in fields(answer)}
    return RestoredText(**{**known, **more})


RESTORE_INLINE = Verb(
    name=RESTORE.name,
    arguments=RestoreInline,
    answer=RestoredText,
    act=lambda context, name, asked: restore_with_text(
        context,
        name,
        asked.entry,
        asked.keys,
        inline=asked.inline,
        offset=asked.offset,
        size=asked.size,
    ),
    changes=True,
    tools=(
        Tool(
            "restore_remote",
            "Restore an extracted entry",
            "Get the text that a placeholder [[extracted-ID]] stands for, at once: `entry` is the "
            "ID. If the session is at rest the text is put back inline, too; your own is in use "
            "now, and `inline` of the answer says what becomes of it. To find out whether you need "
            "the text, search_extracted is cheaper.",
            pictures=True,
        ),
        Tool(
            "restore",
            "Restore an extracted entry",
            "Get the text that a placeholder [[extracted-ID]] stands for, at once, and put it back "
            "inline if the session is at rest: `entry_id` is the ID. What came back is not taken "
            "out again for some minutes; an entry that you need again and again is kept by "
            "purge_control with action set_extractable and value false.",
            pictures=True,
        ),
    ),
)


def in_session(asked: RestoreInline) -> tuple[Verb[Any, Any], Restore | ReadExtracted]:
    """What is meant where the call stands in the session: it comes back, or its text is read."""
    if asked.inline is False:
        return READ_EXTRACTED, asked.reading()
    return RESTORE, asked


def explained(busy: Busy, name: SessionName, layout: Layout) -> Busy:
    """Tell whoever wanted to change a session in use what will become of that."""
    if program_of(layout, name.agent).uncallable:
        busy.hint = (
            "it is not done, and will not be while its program is at work: "
            "again once the session is closed"
        )
    elif will_carry_out(layout):
        busy.hint = (
            "do not repeat it: in an agent's own session the daemon carries the call out when the "
            "turn is over; for another session, try again later"
        )
    else:
        busy.hint = "it is not done, and no bsd daemon runs that could do it later: try again"
    return busy


def will_carry_out(layout: Layout) -> bool:
    """Whether a daemon is there that carries out calls which it finds in a session."""
    return is_running(layout) and ConfigService(layout.config_file, create=False).current.enabled


def _refused(
    context: ActionContext, session: SessionName, entry: str, keys: Sequence[str] | None
) -> RestoredText:
    """Raise Conflict that nothing of an entry is extracted, in seed 001's words.

    Returns only if that is no longer so.
    """
    try:
        return _with_text(context.run(restore, session, entry, keys))
    except Busy:
        problem = Conflict("Entry exists but has no extracted content")
    except Conflict as conflict:
        problem = conflict
    problem.hint = f"read_extracted with entry {entry} gives its text as it stands there"
    raise problem


def _what_becomes(
    problem: BsdError, entry: str, name: SessionName, layout: Layout, *, later: bool
) -> tuple[Inline, str]:
    """Tell when a value that could not be put back now comes back, and what to do about it.

    `later`: the caller wants it to be put back once the session is idle.
    """
    by_hand = f"`bsd restore {name} {entry}`"
    if isinstance(problem, LeftAlone):
        return Inline.NEVER, f"The text is only here: the session is never changed, {problem}."
    if not isinstance(problem, Busy):
        return Inline.NOT_NOW, f"It was not put back: {problem.message}."
    if program_of(layout, name.agent).uncallable:
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
        f"If this is {name}, it is put back when the turn is over, and this call is tidied away."
    )


def _text_only(found: ReadHeld, inline: Inline, note: str) -> RestoredText:
    """Seed 001's answer for what was not put back, with the text."""
    return RestoredText(entry_id=found.entry_id, inline=inline, note=note, **_page_of(found))


def _page_of(found: ReadHeld) -> dict[str, Any]:
    return {name: getattr(found, name) for name in _PAGE}


_PAGE = ("texts", "pictures", "characters_left", "next", "beside", "unavailable")

"""The tools for sessions (SPEC §5, §6): each method of `SessionTools` is a tool.

The parameters of a method are those of the tool (`arguments` describes them), and its docstring is
the description that models read. A method calls an action and returns the answer as a JSON object.
Calls in a transcript are validated against the same parameters (`inband`). This module does not
import the MCP library, since the daemon's child processes use the tools without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bsd.actions.context import ActionContext
from bsd.actions.context_tool import change_context, get_context
from bsd.actions.edit import set_extractable
from bsd.actions.read_extracted import read_extracted
from bsd.actions.search import search_extracted
from bsd.core.answers import as_json
from bsd.core.errors import BsdError, Busy, NotFound
from bsd.core.layout import SessionName
from bsd.mcp.arguments import (
    PURGE_ACTIONS,
    ContextActionArg,
    EntryArg,
    ExtractableArg,
    IncludeUserArg,
    InlineArg,
    KeysArg,
    OffsetArg,
    PurgeActionArg,
    PurgeEntryArg,
    SearchLimitArg,
    SearchOffsetArg,
    SearchQueryArg,
    SessionArg,
    TargetsArg,
    refused,
    unknown_choice,
)
from bsd.mcp.restoring import explain_busy, restore_with_text
from bsd.mcp.scope import Scope
from bsd.planning.targets import Refused
from bsd.transcripts.agents.page_size import OTHERS, PageSize

Json = dict[str, Any]


class SessionTools:
    """The tools for sessions, for a caller.

    Args:
        context: the context for the actions.
        scope: the sessions that the caller may reach, and the caller's own session.
        page_size: returns the largest amount of text in an answer to this caller.

    Every tool raises Invalid, NotFound or Forbidden if the session or entry does not exist or is
    out of reach, and Busy, with a hint about the call, if the session is in use.
    """

    def __init__(
        self,
        context: ActionContext,
        scope: Scope,
        page_size: Callable[[], PageSize] = lambda: OTHERS,
    ) -> None:
        self._context = context
        self._scope = scope
        self._page_size = page_size
        # Reading whole sessions in parallel would delay the answers of all calls.
        self._reads_whole_session = threading.Lock()

    def purge_control(
        self,
        action: PurgeActionArg,
        session: SessionArg = None,
        entry: PurgeEntryArg = None,
        keys: KeysArg = None,
        value: ExtractableArg = None,
        inline: InlineArg = None,
        offset: OffsetArg = 0,  # of the entries listed; of restore, characters of the text
    ) -> Json:
        """List and control content that was moved out of a session to keep it small.

        [[extracted-ID]] replaces old large values. get_context lists all entries: id, hash, size,
        extracted or not. restore is the tool restore. set_extractable keeps an entry for good, or
        lets it go.
        """
        check_purge_control(action, entry, value)
        entry = entry or ""
        if action == "get_context":
            with self._reads_whole_session:
                return self._answer(session, lambda name: self._context.query(get_context, name))
        if action == "restore":
            return self._restore(session, entry, keys, inline, offset)
        value = None if value == "unset" else value
        return self._answer(
            session, lambda name: self._context.run(set_extractable, name, entry, value)
        )

    def restore_remote(
        self,
        entry: EntryArg,
        session: SessionArg = None,
        keys: KeysArg = None,
        inline: InlineArg = None,
        offset: OffsetArg = 0,
    ) -> Json:
        """Another name of the tool restore: get the text that [[extracted-ID]] replaces.

        search_extracted may be cheaper.
        """
        return self._restore(session, entry, keys, inline, offset)

    def restore(
        self,
        entry_id: EntryArg,
        session: SessionArg = None,
        keys: KeysArg = None,
        inline: InlineArg = None,
        offset: OffsetArg = 0,
    ) -> Json:
        """Get the text that [[extracted-ID]] replaces, at once.

        If the session is idle, it is also put back inline for some minutes; with `inline` true
        also after your turn.
        """
        return self._restore(session, entry_id, keys, inline, offset)

    def read_extracted(
        self,
        entry: EntryArg,
        session: SessionArg = None,
        keys: KeysArg = None,
        offset: OffsetArg = 0,
    ) -> Json:
        """Read the text that [[extracted-ID]] replaces; changes no data.

        Long texts come in pages: `next` says how to read on.
        """
        size = self._page_size()
        return self._answer(
            session,
            lambda name: self._context.query(
                read_extracted, name, entry, keys, offset=offset, size=size
            ),
            entry,
        )

    def context(
        self,
        action: ContextActionArg,
        targets: TargetsArg,
        session: SessionArg = None,
        include_user: IncludeUserArg = False,
    ) -> Json:
        """Make your context smaller.

        replace puts `replacement` in place of all from the text `start` to the next text `end`,
        both included: literal, at least 30 characters, exactly one match. discard empties an entry,
        distill leaves your summary; get_context lists hashes. All targets are done or none. For
        logs and listings that are dealt with, never for text that you may have to quote.
        """
        return self._answer(
            session,
            lambda name: self._context.run(
                change_context, name, action, targets, include_user=include_user
            ),
        )

    def search_extracted(
        self,
        query: SearchQueryArg,
        session: SessionArg = None,
        limit: SearchLimitArg = 10,
        offset: SearchOffsetArg = 0,
    ) -> Json:
        """Find words in text that was moved out of a session, without putting it back.

        Returns entry ids and the text around the words.
        """
        with self._reads_whole_session:
            return self._answer(
                session,
                lambda name: self._context.query(
                    search_extracted, name, query, limit=limit, offset=offset
                ),
            )

    def _restore(
        self, session: str | None, entry: str, keys: KeysArg, inline: bool | None, offset: int
    ) -> Json:
        return self._answer(
            session,
            lambda name: restore_with_text(
                self._context,
                name,
                entry,
                keys,
                inline=inline,
                offset=offset,
                size=self._page_size(),
            ),
            entry,
        )

    def _answer(
        self, session: str | None, call: Callable[[SessionName], Any], entry: str | None = None
    ) -> Json:
        """Call an action with the name of the session, and return its answer.

        Args:
            session: the name that the caller gives; None: its own session, or the session from
                which `entry` was extracted.
        """
        layout = self._context.layout
        name = self._scope.find(layout, session, entry)
        try:
            answer = as_json(call(name))
        except NotFound:
            begun_in = self._scope.begun_in(layout, name, entry) if entry else None
            if begun_in is None:
                raise
            return self._answer(str(begun_in), call, entry) | {"session": str(begun_in)}
        except Busy as busy:
            raise explain_busy(busy, layout, name) from None
        # If the caller did not name the session, the answer does.
        return answer if session is not None else {"session": str(name), **answer}


# The tools by name, in the order in which clients list them.
TOOLS: dict[str, Callable[..., Json]] = {
    tool.__name__: tool
    for tool in (
        SessionTools.purge_control,
        SessionTools.restore_remote,
        SessionTools.restore,
        SessionTools.read_extracted,
        SessionTools.context,
        SessionTools.search_extracted,
    )
}


def check_purge_control(action: str, entry: str | None, value: object) -> None:
    """Raise Invalid, in seed 001's words, if an argument that the action needs is missing."""
    if action not in PURGE_ACTIONS:
        raise unknown_choice("action", action, PURGE_ACTIONS)
    if action != "get_context" and not entry:
        raise refused("entry", f"entry parameter is required for {action} action")
    if action == "set_extractable" and value is None:
        message = "value parameter is required for set_extractable action (true, false, or integer)"
        raise refused("value", message)


def error_answer(error: BsdError) -> Json:
    """Return the answer of a tool for an error; `busy` means that the call may succeed later."""
    if isinstance(error, Refused):
        return error.as_json()
    answer: Json = {"error": error.message}
    if error.hint is not None:
        answer["hint"] = error.hint
    if [one.message for one in error.errors] not in ([], [error.message]):
        answer["errors"] = [{"field": one.field, "message": one.message} for one in error.errors]
    if isinstance(error, Busy):
        answer["busy"] = True
    return answer

"""The agent's tools (SPEC §5), defined once for the command line, MCP and calls in a transcript."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bsd.doors.agent.arguments import (
    ActOnContext,
    Arguments,
    ContextArguments,
    Deed,
    GetContext,
    PurgeControlArguments,
    Read,
    ReadArguments,
    Restore,
    RestoreArguments,
    RestoreRemoteArguments,
    SearchArguments,
    SearchExtracted,
    SetExtractable,
    read_arguments,
    schema_of,
)
from bsd.doors.agent.restoring import Hands, Meanwhile, explained, read, restore
from bsd.foundation.errors import Busy, Invalid

if TYPE_CHECKING:
    from bsd.foundation.layout import Layout, SessionName

# A listing that fills the context would be worse than what it helps against.
_MOST_ENTRIES = 50


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as a model is told of it."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    changes: bool  # it may change a session

    def schema(self, *, takes_session: bool = True) -> dict[str, Any]:
        """The JSON schema of its arguments; without `session` where there is only one."""
        schema = schema_of(self.arguments)
        if not takes_session:
            del schema["properties"]["session"]
        return schema


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, understood."""

    tool: Tool
    session: str | None
    deed: Deed

    @property
    def lacks(self) -> str | None:
        """The entry whose text is asked for: it is away of the session that is meant."""
        return self.deed.entry if isinstance(self.deed, Restore | Read) else None


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "purge_control",
            "Look at and control what is out of the session",
            "See and control what was moved out of a session to keep it small. Old large values "
            "stand there as [[extracted-ID]] and can be had again. get_context lists every entry "
            "with its id, its hash, its size, and whether it is extracted. restore does what the "
            "tool restore does with `entry`. set_extractable says what shall become of `entry`: "
            "false keeps it in sight for good, a number for so many messages, true lets it go "
            "soon.",
            PurgeControlArguments,
            changes=True,
        ),
        Tool(
            "restore_remote",
            "Restore an extracted entry",
            "Get the text that a placeholder [[extracted-ID]] stands for, at once: `entry` is the "
            "ID. If the session is at rest the text is put back inline, too; your own is in use "
            "now, and `inline` of the answer says what becomes of it. To find out whether you need "
            "the text, search_extracted is cheaper.",
            RestoreRemoteArguments,
            changes=True,
        ),
        Tool(
            "restore",
            "Restore an extracted entry",
            "Get the text that a placeholder [[extracted-ID]] stands for, at once, and put it back "
            "inline if the session is at rest: `entry_id` is the ID. What came back is not taken "
            "out again for some minutes; an entry that you need again and again is kept by "
            "purge_control with action set_extractable and value false.",
            RestoreArguments,
            changes=True,
        ),
        Tool(
            "read_extracted",
            "Read an extracted entry",
            "Read the text that a placeholder [[extracted-ID]] stands for; nothing is changed. "
            "Long texts come in pages of 40,000 characters: `next` of the answer says with which "
            "arguments to read on. Pictures are shown.",
            ReadArguments,
            changes=False,
        ),
        Tool(
            "context",
            "Replace, discard or distill content",
            "Make your context smaller where you know that you need less than is there. replace "
            "puts `replacement` in place of everything from the text `start` to the next text "
            "`end`, both included: literal, at least 30 characters, and exactly one match in the "
            "session. discard [hash] empties an entry, distill [hash, summary] leaves your summary "
            "there; get_context lists the hashes. All targets of a call are done or none, and a "
            "person can undo it. Use it for logs, traces and listings that are dealt with, never "
            "for what you may have to quote.",
            ContextArguments,
            changes=True,
        ),
        Tool(
            "search_extracted",
            "Search what was extracted",
            "Find words in what was moved out of a session, without putting it back: the entries "
            "that hold them all, best first, each with its id and the text around them. Often that "
            "is all you need; if not, read_extracted gives the whole text.",
            SearchArguments,
            changes=False,
        ),
    )
}


def reads_much(name: str, arguments: object) -> bool:
    """Whether a call reads a whole session, and would keep others from their answers."""
    action = arguments.get("action") if isinstance(arguments, dict) else None
    return name == "search_extracted" or action == GetContext.action


def read_call(name: str, arguments: object) -> Call:
    """Understand a call; raises Invalid that says everything that is wrong with it."""
    tool = TOOLS.get(name)
    if tool is None:
        raise Invalid(f"there is no tool {name}", hint=f"one of {', '.join(TOOLS)}")
    read = read_arguments(tool.arguments, arguments)
    return Call(tool, read.session, read.deed())


def carry_out(
    call: Call, name: SessionName, hands: Hands, meanwhile: Meanwhile = lambda _: None
) -> dict[str, Any]:
    """Do what a call asks of a session, and return the answer: a JSON object.

    `meanwhile` is given an answer that is true before that is done, if there is one. Raises what
    the surgeon raises.
    """
    try:
        answer = _carry_out(call, name, hands, meanwhile)
    except Busy as busy:
        raise explained(busy, name, hands.layout) from None
    # Who did not say which session was meant is told.
    return answer if call.session is not None else {"session": str(name), **answer}


def _carry_out(call: Call, name: SessionName, hands: Hands, meanwhile: Meanwhile) -> dict[str, Any]:
    match call.deed:
        case GetContext():
            return hands.surgeon(name, writes=False).context(name)
        case SearchExtracted(query, limit):
            return search_extracted(hands.layout, name, query, limit)
        case Read() as deed:
            return read(deed, name, hands)
        case Restore() as deed:
            return restore(deed, name, hands, meanwhile)
        case SetExtractable(entry, value):
            return hands.surgeon(name, writes=True).set_extractable(name, entry, value)
        case ActOnContext(_, targets, user):
            surgeon = hands.surgeon(name, writes=True)
            return surgeon.change_context(name, targets, include_user=user)


def in_short(context: dict[str, Any]) -> dict[str, Any]:
    """What a model is told, which `get_context` could be too much for: the largest entries."""
    entries: list[dict[str, Any]] = context.get("entries", [])
    if len(entries) <= _MOST_ENTRIES:
        return context
    largest = sorted(entries, key=lambda entry: -int(entry["size_bytes"]))[:_MOST_ENTRIES]
    shown = sorted(largest, key=lambda entry: int(entry["index"]))
    return {**context, "entries": shown, "entries_left_out": len(entries) - len(shown)}


def search_extracted(layout: Layout, name: SessionName, query: str, limit: int) -> dict[str, Any]:
    """Find words in what is away of one session; nothing is put back."""
    from bsd.care.search import search  # noqa: PLC0415 - only this tool needs the index

    hits = search(layout, query, agent=name.agent, limit=limit, extracted_from=name)
    return {
        "session": str(name),
        "query": query,
        "results": [
            {"entry_id": hit.entry, "index": hit.index, "snippet": hit.snippet.text} for hit in hits
        ],
    }

"""The agents' tools as commands (seeds 000 and 001), and `bsd mcp`, which serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from bsd.actions.context import ActionContext
from bsd.actions.context_tool import get_context
from bsd.actions.edit import set_extractable
from bsd.cli import completion
from bsd.cli.call import LONGEST_WAIT, BsdCommand, Call
from bsd.cli.completion import KEYS, SESSION
from bsd.cli.entries import read_extractable
from bsd.cli.names import session_beginning_with, with_entry
from bsd.cli.output import print_json, say
from bsd.core.answers import as_json
from bsd.core.errors import Busy, FieldError, Invalid
from bsd.core.layout import SessionName, check_name
from bsd.mcp.restoring import Inline, RestoredText, explain_busy, restore_with_text
from bsd.mcp.scope import Scope
from bsd.mcp.transcript_commands import AFTER_THE_TURN, TEXT_ONLY
from bsd.planning.edit import ExtractableSet
from bsd.planning.view import Context

T = TypeVar("T")

_ACTIONS = ("get_context", "restore", "set_extractable")
_SCOPE = Scope()  # people reach every session

session_option = click.option(
    "--session",
    metavar="SESSION",
    shell_complete=completion.sessions,
    help="AGENT/SESSION, or an id that only one agent has; default: the calling program's session.",
)
inline_option = click.option(
    "--inline/--text-only",
    default=None,
    help="Put the text back into the session, if need be after the turn; or only print it.",
)
offset_option = click.option(
    "--offset",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Start at character N of a long text.",
)


@click.command("restore_remote", cls=BsdCommand)
@session_option
@click.option("--entry", metavar="ENTRY", help="The id in [[extracted-ENTRY]].")
@click.option("--keys", type=KEYS, metavar="KEY,…", help="Only these values; default: all.")
@inline_option
@offset_option
@click.pass_obj
def restore_remote_command(
    call: Call,
    /,
    session: str | None,
    entry: str | None,
    keys: list[str] | None,
    inline: bool | None,
    offset: int,
) -> int:
    """Restore an entry by the id in its placeholder.

    Prints the text that the model was sent, 15,000 bytes at a time, even if the session is in use.
    Unless the session is in use, the text is also put back into it. Copies that the program keeps
    for its own page are listed by name; --keys prints them.

    \b
    Examples:
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys content,output
      bsd restore_remote --session 4f2a --entry 1c556fa0 --keys output --offset 15000
    """
    if not entry:
        raise _refused("entry", "entry parameter is required")
    return _restore(call, session, entry, keys, inline, offset)


@click.command("purge_control", cls=BsdCommand)
@click.argument("words", nargs=-1, metavar="[ACTION] [ENTRY] [VALUE]")
@click.option("--action", metavar="ACTION", help=", ".join(_ACTIONS))
@session_option
@click.option("--entry", metavar="ENTRY", help="The id of the entry.")
@click.option("--keys", type=KEYS, metavar="KEY,…", help="For restore: only these values.")
@click.option("--value", metavar="VALUE", help="For set_extractable: true, false or a number.")
@inline_option
@offset_option
@click.pass_obj
def purge_control_command(
    call: Call,
    /,
    *,
    words: tuple[str, ...],
    action: str | None,
    session: str | None,
    entry: str | None,
    keys: list[str] | None,
    value: str | None,
    inline: bool | None,
    offset: int,
) -> int:
    """Run one of the agents' tools: get_context, restore, set_extractable.

    The options --action, --entry and --value can be used instead of the arguments.

    \b
    Examples:
      bsd purge_control get_context --session 4f2a
      bsd purge_control restore 1c556fa0 --session 4f2a --keys output
      bsd purge_control set_extractable 1c556fa0 false --session 4f2a
      bsd purge_control --action restore --session main/4f2a --entry 1c556fa0
    """
    action, entry, value = _name_words(words, action, entry, value)
    if action == "get_context":
        return _get_context(call, session)
    if action not in _ACTIONS:
        choices = ", ".join(_ACTIONS)
        raise _refused("action", f"Unknown action '{action}'. Valid actions: {choices}")
    if not entry:
        raise _refused("entry", f"entry parameter is required for {action} action")
    if action == "restore":
        return _restore(call, session, entry, keys, inline, offset)
    if value is None:
        what = "(true, false, or integer)"
        raise _refused("value", f"value parameter is required for set_extractable action {what}")
    return _set_extractable(call, session, entry, value)


def _name_words(
    words: Sequence[str], action: str | None, entry: str | None, value: str | None
) -> tuple[str, str | None, str | None]:
    """Return action, entry and value; `words` supplies, in this order, those without an option."""
    rest = list(words)

    def given(option: str | None) -> str | None:
        return option or (rest.pop(0) if rest else None)

    action = given(action) or ""
    if action != "get_context":
        entry = given(entry)
    if action == "set_extractable":
        value = given(value)
    if rest and action in _ACTIONS:
        raise Invalid(f"{rest[0]!r} is an extra argument", hint="`bsd purge_control --help`")
    return action, entry, value


def _refused(parameter: str, message: str) -> Invalid:
    hint = f"add --{parameter} to the command"
    return Invalid(message, hint=hint, errors=(FieldError(parameter, message),))


def _get_context(call: Call, session: str | None) -> int:
    name = _find(call, session)
    with call.context(changes=False, session=name, actor="agent") as context:
        answer = get_context(context, name)
    _print(call, session, name, answer, tell_context)
    return 0


def _restore(
    call: Call,
    session: str | None,
    entry: str,
    keys: list[str] | None,
    inline: bool | None,
    offset: int,
) -> int:
    name = _find(call, session, entry)
    with _acting(call, name) as context:
        answer = with_entry(
            call,
            name,
            entry,
            lambda entry: restore_with_text(
                context, name, entry, keys, inline=inline, offset=offset
            ),
        )
    _print(call, session, name, answer, tell_restored)
    if answer.unavailable:
        return 1
    return Busy.exit_code if inline and not answer.restored else 0


def _set_extractable(call: Call, session: str | None, entry: str, value: str) -> int:
    extractable = read_extractable(value)
    name = _find(call, session)
    with _acting(call, name) as context:
        answer = with_entry(
            call, name, entry, lambda entry: set_extractable(context, name, entry, extractable)
        )
    _print(call, session, name, answer, tell_extractable)
    return 0


def _find(call: Call, text: str | None, entry: str | None = None) -> SessionName:
    """Return the session by its name or beginning; without a name, the calling program's session.

    Args:
        text: the session as the user typed it.
        entry: an entry that was extracted from the session.
    """
    if text:
        text = str(session_beginning_with(call.layout, text) or text)
    return _SCOPE.find(call.layout, text, entry)


@contextmanager
def _acting(call: Call, session: SessionName) -> Iterator[ActionContext]:
    """Make a context that may change a session.

    If the session is the calling agent's own, the call does not wait until it is idle.
    """
    wait = LONGEST_WAIT if _SCOPE.may_wait(call.layout, session) else 0.0
    try:
        with call.context(changes=True, actor="agent", wait=wait) as context:
            yield context
    except Busy as busy:
        raise explain_busy(busy, call.layout, session) from None


def _print(
    call: Call, given: str | None, session: SessionName, answer: T, tell: Callable[[T], None]
) -> None:
    """Print an answer. If the caller did not name the session, the JSON document names it."""
    if call.json:
        document = as_json(answer)
        print_json(document if given else {"session": str(session), **document})
    else:
        tell(answer)


def tell_context(answer: Context) -> None:
    say(f"Session: {answer.session}")
    say(f"Total entries: {answer.total_entries}")
    say(f"Extracted entries: {answer.extracted_entries}")
    say("\nExtracted entry IDs:")
    say("\n".join(f"  - {entry}" for entry in answer.extracted_ids) or "  (none)")


def tell_extractable(answer: ExtractableSet) -> None:
    value = "unset" if answer.extractable is None else str(answer.extractable).lower()
    say(f"Set _extractable={value} for entry {answer.entry_id}")


def tell_restored(answer: RestoredText) -> None:
    if answer.note is not None:
        later = answer.inline is Inline.AFTER_THE_TURN
        say(f"{AFTER_THE_TURN if later else TEXT_ONLY}{answer.note}")
    else:
        say(f"Restored {len(answer.keys_restored)} keys for entry {answer.entry_id}")
        if answer.keys_restored:
            say(f"Keys: {', '.join(answer.keys_restored)}")
    for key, why in answer.unavailable.items():
        say(f"{key}: {why}")
    if answer.suggestion is not None:
        say(f"Previously restored at {answer.previous_restored_at}. {answer.suggestion}")
    for key, text in answer.texts.items():
        say(f"\n{key}:\n{text}")
    for key, what in answer.beside.items():
        say(f"\n{key}: {what}")
    if answer.next:
        keys, offset = ",".join(answer.next["keys"]), answer.next["offset"]
        more = f"{answer.characters_left} more characters"
        say(f"\n({more}: --keys {keys} --offset {offset} --text-only)")


@click.command("mcp", cls=BsdCommand)
@click.option("--agent", metavar="AGENT", help="Only the sessions of this agent.")
@click.option(
    "--session",
    type=SESSION,
    metavar="AGENT/SESSION",
    help="Only this session; the tools need not name it.",
)
@click.option(
    "--tools",
    type=click.Choice(["all", "sessions", "memory"]),
    help="The tools for sessions, for facts, or both [default: for sessions, and for facts if a"
    " memory is in use].",
)
@click.pass_obj
def mcp_command(call: Call, /, agent: str | None, session: SessionName | None, tools: Any) -> None:
    """Serve the agent's tools over MCP, on stdin and stdout.

    An agent's program starts this command. It serves purge_control, restore_remote, restore,
    read_extracted, context and search_extracted for sessions, and the tools whose names begin with
    memory_ for facts. It needs no running daemon, and works beside one. Without options, a call may
    name any session. If a call names no session, bsd uses the session that the calling program has
    open, if there is only one.

    Each tool's description takes room in the agent's context; --tools serves fewer of them.

    \b
    Examples:
      bsd mcp
      bsd mcp --agent main
      bsd mcp --session main/4f2a --tools sessions
      openclaw mcp set bsd '{"command":"bsd","args":["mcp","--agent","main"]}'
    """
    if agent is not None:
        check_name(agent, "agent")
    if agent is not None and session is not None and session.agent != agent:
        raise Invalid(f"{session} is no session of {agent}", hint="name one of --agent, --session")
    from bsd.mcp.server import serve  # with the SDK, which takes most of the start

    with call.context(changes=not call.settings.readonly, actor="agent"):
        pass  # finishes commits in flight
    serve(call.layout, call.pruning, call.settings, Scope(agent, session), tools)

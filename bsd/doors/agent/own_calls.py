"""Finds calls of our tools in a transcript: by name, and by the commands of a shell. Pure.

Only real ones, and what has become of each.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bsd.agents.dialect import Facts, Format, ToolCall, Turn
from bsd.agents.entry import Entry, is_placeholder
from bsd.command_line import split_command
from bsd.doors.agent.answers import gives_text, is_answered, is_for_later, read_answer
from bsd.doors.agent.tools import TOOLS
from bsd.doors.tool_commands import AFTER_THE_TURN, TEXT_ONLY, read_words
from bsd.doors.tool_commands import TOOLS as COMMANDS
from bsd.foundation.value_path import value_at
from bsd.store.state import Checkpoint
from bsd.surgery.rules import Policy
from bsd.surgery.targets import ACTIONS
from bsd.text.reader import Line, Transcript, is_too_large, parse_entry

# Of our other names nobody else has a tool.
_ANYBODYS = frozenset(("restore", "context"))
_UNMISTAKABLE = frozenset(TOOLS) - _ANYBODYS
_PREFIX = "bsd_"  # as some clients write what others write as `mcp__bsd__`
# What our commands do, as the tool that does the same.
_COMMANDS = {**{name: name for name in COMMANDS}, "restore": "restore"}
_SEPARATORS = re.compile(r"&&|\|\||[;|&\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

# Bytes without which a line holds no such call. Few, since a first look searches whole files.
NEEDLES = (
    b"restore",
    b'context"',
    *(name.encode() for name in sorted(_UNMISTAKABLE) if "restore" not in name),
)

REDACTED = "_redacted"
# Entry member: id of a call (or of its entry) → what came of it. For calls that stay as they are.
ANSWERED = "_answered"

# What our commands print when the session is in use, as an agent's own is during its turn.
_BUSY = re.compile(r"session \S+ is in use: ")
_LATER = re.compile(rf"^{AFTER_THE_TURN}", re.MULTILINE)
# Where they print a text, one of these stands above it. (Earlier versions of them printed none.)
_WITH_TEXT = re.compile(
    rf"^(?:{AFTER_THE_TURN}|{TEXT_ONLY}|Restored \d+ keys for entry .*(?:\n.+)*\n\n\S)",
    re.MULTILINE,
)


@dataclass(slots=True)
class OwnCall:
    """One call, with what the lines after it say of it."""

    tool: str  # ours that is meant
    name: str  # as it stands there
    call_id: str  # "" if it has none
    entry_id: str | None
    index: int  # line number
    arguments: Any
    by_shell: bool = False
    alone: bool = True  # the shell was asked for nothing else
    ended: bool = False  # its message says that no result will come
    over: bool = False  # its turn is
    bound: bool = False  # a later signature covers it: the provider refuses what is changed
    result: str | None = None
    result_index: int | None = None  # line number
    failed: bool = False  # its owner says so

    @property
    def key(self) -> str:
        """What tells it from other calls in its entry."""
        return self.call_id or self.entry_id or ""

    @property
    def is_done(self) -> bool:
        """Whether one of our doors has dealt with it already: a shell, or the MCP server."""
        if self.result is None:
            return False
        if self.by_shell:
            later = _LATER.search(self.result) or is_for_later(read_answer(self.result))
            return not later and _BUSY.search(self.result) is None
        return is_answered(self.tool, self.result)

    @property
    def gives_text(self) -> bool:
        """Whether its result carries text that was taken out of a session."""
        if self.result is None:
            return False
        if self.by_shell and _WITH_TEXT.search(self.result):
            return True
        return gives_text(read_answer(self.result))

    @property
    def is_due(self) -> bool:
        """Whether it can be dealt with now, for good."""
        if not self.over or (self.result is None and (self.ended or self.by_shell)):
            return False  # nobody has run it, or nobody knows what it did
        # What is away of its result may be our answer: it is not done twice.
        return self.result is None or not is_placeholder(self.result.strip())


def own_calls(
    source: Transcript, fmt: Format, policy: Policy, since: Checkpoint | None
) -> list[OwnCall]:
    """List the calls from a checkpoint on that nothing says have been dealt with.

    A line that cannot hold one costs no more than looking at its bytes, up to the first call.
    """
    found = _CallsSoFar(policy)
    start = (since.offset, since.index) if since else (0, 0)
    for line in source.lines(*start):
        if not found.calls and not any(needle in line.raw for needle in NEEDLES):
            continue
        entry = parse_entry(line.raw)
        if entry is not None:
            found.follow(line, entry, fmt)
    return found.calls


class _CallsSoFar:
    """Follows a session from its first call on."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.calls: list[OwnCall] = []

    def follow(self, line: Line, entry: Entry, fmt: Format) -> None:
        facts = fmt.facts(entry)
        if facts.turn in {Turn.STARTS, Turn.CLOSES}:
            for call in self.calls:
                call.over = True
        if facts.signed_by is not None and self._policy.binds(facts.signed_by):
            for call in self.calls:
                call.bound = True
        if facts.result_of is not None or facts.result_tool is not None:
            self._note_result(line, entry, facts, fmt)
        if entry.get(REDACTED) is not True:
            self.calls.extend(_calls_of(line, entry, fmt, facts))

    def _note_result(self, line: Line, entry: Entry, facts: Facts, fmt: Format) -> None:
        for call in self.calls:
            if call.result is None and _answers(facts, call):
                texts = [value.text for value in fmt.values(entry) if value.text]
                call.result = "\n".join(texts)
                call.result_index = line.index
                call.failed = any(flag for _, flag in fmt.error_flags(entry))
                return


def _calls_of(line: Line, entry: Entry, fmt: Format, facts: Facts) -> Iterator[OwnCall]:
    answered = entry.get(ANSWERED)
    known = answered if isinstance(answered, dict) else {}
    for call in facts.calls:
        found = _own_call(line, entry, fmt, facts, call)
        if found is not None and found.key not in known:
            yield found


def _own_call(
    line: Line, entry: Entry, fmt: Format, facts: Facts, call: ToolCall
) -> OwnCall | None:
    arguments = _arguments(entry, call)
    ran = ran_by_shell(fmt.command(call.name, arguments))
    tool = ran.tool if ran else own_tool_name(call.name, arguments)
    if tool is None:
        return None
    return OwnCall(
        tool,
        call.name,
        call.id,
        facts.id,
        line.index,
        ran.arguments if ran else arguments,
        by_shell=ran is not None,
        alone=ran is None or ran.alone,
        ended=facts.turn is Turn.CLOSES,
        # Entries without turns: whoever wrote it is at rest, or nobody would look.
        over=facts.turn in {Turn.NONE, Turn.CLOSES},
    )


def _arguments(entry: Entry, call: ToolCall) -> Any:
    given = value_at(entry, call.arguments) if call.arguments else None
    if isinstance(given, str):  # some write the object as its JSON text
        if is_too_large(given.encode("utf-8", "surrogatepass")):
            return given
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return given
    return given


def _answers(facts: Facts, call: OwnCall) -> bool:
    if facts.result_of is not None:
        return facts.result_of == call.key
    return facts.result_tool == call.name


def own_tool_name(name: str, arguments: Any) -> str | None:
    """Return which of our tools a call means, under whatever prefix an MCP client gave it."""
    prefix, _, bare = name.rpartition("__")
    if not prefix and bare.startswith(_PREFIX):
        prefix, bare = _PREFIX, bare.removeprefix(_PREFIX)
    if bare in _UNMISTAKABLE:
        return bare
    if bare not in _ANYBODYS:
        return None
    if prefix:
        ours = "bsd" in prefix.lower() or "brainsurgeon" in prefix.lower()
    elif bare == "restore":
        known = isinstance(arguments, dict) and bool(arguments)
        ours = not known or not {"entry_id", "entry", "keys"}.isdisjoint(arguments)
    else:
        ours = isinstance(arguments, dict) and arguments.get("action") in ACTIONS
    return bare if ours else None


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of ours that a shell has run."""

    tool: str
    alone: bool  # the shell was asked for nothing else
    arguments: dict[str, Any] | None = None  # if they can be read


def ran_by_shell(command: Any) -> Ran | None:
    """Return what of ours a command is, given to a shell as a text or as words; None: nothing."""
    if isinstance(command, list):
        pieces = [[word for word in command if isinstance(word, str)]]
    elif isinstance(command, str):
        pieces = [_words(piece) for piece in _SEPARATORS.split(command)]
    else:
        return None
    pieces = [piece for piece in pieces if piece]
    for piece in pieces:
        while piece and _ASSIGNMENT.match(piece[0]):
            piece = piece[1:]  # noqa: PLW2901 - what a shell takes for the environment
        if piece and piece[0].rpartition("/")[2] == "bsd":
            _, ours, words = split_command(piece[1:])
            if ours in _COMMANDS:
                read = read_words(ours, words) if ours in COMMANDS else None
                return Ran(_COMMANDS[ours], len(pieces) == 1, read)
    return None


def _words(piece: str) -> list[str]:
    try:
        return shlex.split(piece)
    except ValueError:  # quotes that do not match: a separator stood between them
        return piece.split()

"""Finds calls of bsd's tools in a transcript, with their state from the lines after them. No I/O.

Only real calls count: of a tool, or of a shell that runs bsd's commands; never text that looks like
a call. `transcript_answers` recognises the answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bsd.core.prices import PriceTable
from bsd.mcp.tools import TOOLS
from bsd.mcp.transcript_answers import gives_text, is_answered, is_for_later, read_answer
from bsd.mcp.transcript_commands import AFTER_THE_TURN, TEXT_ONLY, find_shell_command
from bsd.planning.prompt_cache import PromptCache
from bsd.planning.rules import Policy
from bsd.planning.targets import ACTIONS
from bsd.transcripts.agents.entry import Entry, is_placeholder
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat, Turn
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import value_at

# Read-only tools: their results contain the requested text, so they stay.
READING_TOOLS = frozenset(("read_extracted", "search_extracted"))
# Names that tools of other programs may also have.
_AMBIGUOUS = frozenset(("restore", "context"))
_UNMISTAKABLE = frozenset(TOOLS) - _AMBIGUOUS
_PREFIX = "bsd_"  # as some clients write `mcp__bsd__`

# A line without any of these bytes contains no such call. Few, since whole files are searched.
NEEDLES = (
    b"restore",
    b'context"',
    *(name.encode() for name in sorted(_UNMISTAKABLE) if "restore" not in name),
)

REDACTED = "_redacted"
# Member of an entry whose calls stay unchanged: id of a call (or of its entry) → its answer.
ANSWERED = "_answered"

# The output of bsd's commands if the session is in use, as an agent's own is during its turn.
_BUSY = re.compile(r"session \S+ is in use: ")
_LATER = re.compile(rf"^{AFTER_THE_TURN}", re.MULTILINE)
# If the commands print a text, it follows one of these lines. (Earlier versions printed no text.)
_WITH_TEXT = re.compile(
    rf"^(?:{AFTER_THE_TURN}|{TEXT_ONLY}|Restored \d+ keys for entry .*(?:\n.+)*\n\n\S)",
    re.MULTILINE,
)


@dataclass(slots=True)
class OwnCall:
    """A call, with its state from the lines after it."""

    tool: str  # bsd's name of the tool
    name: str  # the name of the tool in the transcript
    call_id: str  # "" if it has none
    entry_id: str | None
    index: int  # line number
    arguments: Any
    by_shell: bool = False
    alone: bool = True  # the shell command contains no other command
    ended: bool = False  # its message says that no result will follow
    over: bool = False  # its turn has ended
    bound: bool = False  # a later signature covers it, so a provider would refuse a changed call
    result: str | None = None
    result_index: int | None = None  # line number
    failed: bool = False  # its program reports a failure

    @property
    def key(self) -> str:
        """A name that distinguishes the call from other calls of its entry."""
        return self.call_id or self.entry_id or ""

    @property
    def is_done(self) -> bool:
        """True if a command or the MCP server has carried it out."""
        if self.result is None:
            return False
        if self.by_shell:
            later = _LATER.search(self.result) or is_for_later(read_answer(self.result))
            return not later and _BUSY.search(self.result) is None
        return is_answered(self.tool, self.result)

    @property
    def gives_text(self) -> bool:
        """True if its result contains extracted text of a session."""
        if self.result is None:
            return False
        if self.by_shell and _WITH_TEXT.search(self.result):
            return True
        return gives_text(read_answer(self.result))

    @property
    def is_due(self) -> bool:
        """True if it can now be carried out or redacted."""
        if not self.over or (self.result is None and (self.ended or self.by_shell)):
            return False  # the call was not run, or its effect is unknown
        # An extracted result may be bsd's answer, so the call is not carried out again.
        return self.result is None or not is_placeholder(self.result.strip())


class WatchedTranscript:
    """A transcript that finds calls while a planner reads its lines.

    Attributes:
        calls: the calls in the lines of the last reading, without those that are marked as handled.

    Args:
        due: filters calls; returns those to handle.
        waits_at: the current time (epoch seconds), if calls that are already carried out wait while
            the prompt cache is warm; None: no call waits.
        prices: the prices that bsd knows, with the lifetimes of caches.
    """

    def __init__(
        self,
        source: Transcript,
        fmt: TranscriptFormat,
        policy: Policy,
        due: Callable[[Sequence[OwnCall]], Sequence[OwnCall]],
        waits_at: float | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        self.identity, self.size = source.identity, source.size
        self.lines_holding = source.lines_holding
        self.read = source.read
        self.calls: list[OwnCall] = []
        self._source = source
        self._format = fmt
        self._policy = policy
        self._due = due
        self._waits_at = waits_at
        self._prices = prices
        self._cache = PromptCache(prices=prices)

    def has_due_calls(self) -> bool:
        """Return True if there are calls to handle now."""
        return bool(self.due_calls())

    def due_calls(self) -> list[OwnCall]:
        """Return the calls to handle now, in the lines that were read."""
        is_warm = self._warm_until() is not None
        return [call for call in self._due(self.calls) if not (is_warm and call.is_done)]

    def waits_until(self) -> float | None:
        """Return the time (epoch seconds) until which calls wait for the prompt cache, or None."""
        until = self._warm_until()
        # Calls of read-only tools keep their results, so they do not wait.
        done = [call for call in self.calls if call.is_done and call.tool not in READING_TOOLS]
        return until if until is not None and self._due(done) else None

    def _warm_until(self) -> float | None:
        if self._waits_at is None:
            return None
        return self._cache.warm_until(self._waits_at, self.identity.mtime_ns / 1e9)

    def lines(self, start: int = 0, first_index: int = 0) -> Iterator[Line]:
        """Yield the lines from an offset on.

        Before the first call, lines that cannot contain a call are not parsed.
        """
        self.calls, self._cache = [], PromptCache(prices=self._prices)
        for line in self._source.lines(start, first_index):
            if self.calls or any(needle in line.raw for needle in NEEDLES):
                entry = parse_entry(line.raw)
                if entry is not None:
                    self._follow(line, entry)
            yield line

    def _follow(self, line: Line, entry: Entry) -> None:
        fmt = self._format
        info = fmt.info(entry)
        self._cache.follow(info)
        if info.turn is Turn.STARTS or info.turn.is_end:
            for call in self.calls:
                call.over = True
        if info.signed_by is not None and self._policy.binds(info.signed_by):
            for call in self.calls:
                call.bound = True
        if info.result_of is not None or info.result_tool is not None:
            self._note_result(line, entry, info)
        if entry.get(REDACTED) is not True:
            self.calls.extend(_calls_of(line, entry, fmt, info))

    def _note_result(self, line: Line, entry: Entry, info: EntryInfo) -> None:
        for call in self.calls:
            if call.result is None and _answers(info, call):
                texts = [value.text for value in self._format.values(entry) if value.text]
                call.result = "\n".join(texts)
                call.result_index = line.index
                call.failed = any(flag for _, flag in self._format.error_flags(entry))
                return


def _calls_of(
    line: Line, entry: Entry, fmt: TranscriptFormat, info: EntryInfo
) -> Iterator[OwnCall]:
    answered = entry.get(ANSWERED)
    known = answered if isinstance(answered, dict) else {}
    for call in info.calls:
        found = _own_call(line, entry, fmt, info, call)
        if found is not None and found.key not in known:
            yield found


def _own_call(
    line: Line, entry: Entry, fmt: TranscriptFormat, info: EntryInfo, call: ToolCall
) -> OwnCall | None:
    arguments = _arguments(entry, call)
    command = find_shell_command(fmt.command(call.name, arguments))
    tool = command.tool if command else own_tool_name(call.name, arguments)
    if tool is None:
        return None
    return OwnCall(
        tool,
        call.name,
        call.id,
        info.id,
        line.index,
        command.arguments if command else arguments,
        by_shell=command is not None,
        alone=command is None or command.alone,
        ended=info.turn.is_end,
        # If the format has no turns, the turn counts as over: bsd reads only idle sessions.
        over=info.turn is Turn.NONE or info.turn.is_end,
    )


def _arguments(entry: Entry, call: ToolCall) -> Any:
    given = value_at(entry, call.arguments) if call.arguments else None
    if isinstance(given, str):  # some programs write the object as JSON in a string
        if is_too_large(given.encode("utf-8", "surrogatepass")):
            return given
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return given
    return given


def _answers(info: EntryInfo, call: OwnCall) -> bool:
    if info.result_of is not None:
        return info.result_of == call.key
    return info.result_tool == call.name


def own_tool_name(name: str, arguments: Any) -> str | None:
    """Return bsd's tool for a name with any prefix of an MCP client; None for other tools."""
    prefix, _, bare = name.rpartition("__")
    if not prefix and bare.startswith(_PREFIX):
        prefix, bare = _PREFIX, bare.removeprefix(_PREFIX)
    if bare in _UNMISTAKABLE:
        return bare
    if bare not in _AMBIGUOUS:
        return None
    if prefix:
        ours = "bsd" in prefix.lower() or "brainsurgeon" in prefix.lower()
    elif bare == "restore":
        known = isinstance(arguments, dict) and bool(arguments)
        ours = not known or not {"entry_id", "entry", "keys"}.isdisjoint(arguments)
    else:
        ours = isinstance(arguments, dict) and arguments.get("action") in ACTIONS
    return bare if ours else None

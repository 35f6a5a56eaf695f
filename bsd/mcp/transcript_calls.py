"""Our tools in a transcript: calls, answers, and what has become of each. Pure.

Calls are found by name, and by the commands of a shell; only real ones. Answers stand there in
words for the model, and are known again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bsd.actions.parameters import AFTER_THE_TURN, TEXT_ONLY, read_words
from bsd.actions.parameters import TOOLS as COMMANDS
from bsd.actions.verbs import (
    ChangeContext,
    GetContext,
    ReadExtracted,
    Restore,
    SearchExtracted,
    SetExtractable,
)
from bsd.core.definition import told_fields
from bsd.core.verb_names import split_command
from bsd.mcp.legacy_restoring import Inline
from bsd.mcp.legacy_tools import TOOLS
from bsd.planning.rules import Policy
from bsd.planning.targets import ACTIONS
from bsd.store.state import Checkpoint
from bsd.transcripts.agents.entry import Entry, is_placeholder
from bsd.transcripts.agents.format import EntryInfo, ToolCall, TranscriptFormat, Turn
from bsd.transcripts.reader import Line, Transcript, is_too_large, parse_entry
from bsd.transcripts.spans import value_at

# --- calls ---


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
    source: Transcript, fmt: TranscriptFormat, policy: Policy, since: Checkpoint | None
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

    def follow(self, line: Line, entry: Entry, fmt: TranscriptFormat) -> None:
        info = fmt.info(entry)
        if info.turn in {Turn.STARTS, Turn.CLOSES}:
            for call in self.calls:
                call.over = True
        if info.signed_by is not None and self._policy.binds(info.signed_by):
            for call in self.calls:
                call.bound = True
        if info.result_of is not None or info.result_tool is not None:
            self._note_result(line, entry, info, fmt)
        if entry.get(REDACTED) is not True:
            self.calls.extend(_calls_of(line, entry, fmt, info))

    def _note_result(
        self, line: Line, entry: Entry, info: EntryInfo, fmt: TranscriptFormat
    ) -> None:
        for call in self.calls:
            if call.result is None and _answers(info, call):
                texts = [value.text for value in fmt.values(entry) if value.text]
                call.result = "\n".join(texts)
                call.result_index = line.index
                call.failed = any(flag for _, flag in fmt.error_flags(entry))
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
    ran = ran_by_shell(fmt.command(call.name, arguments))
    tool = ran.tool if ran else own_tool_name(call.name, arguments)
    if tool is None:
        return None
    return OwnCall(
        tool,
        call.name,
        call.id,
        info.id,
        line.index,
        ran.arguments if ran else arguments,
        by_shell=ran is not None,
        alone=ran is None or ran.alone,
        ended=info.turn is Turn.CLOSES,
        # Entries without turns: whoever wrote it is idle, or nobody would look.
        over=info.turn in {Turn.NONE, Turn.CLOSES},
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


def _answers(info: EntryInfo, call: OwnCall) -> bool:
    if info.result_of is not None:
        return info.result_of == call.key
    return info.result_tool == call.name


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


# --- answers ---


# What answers hold at least, those of earlier versions included: transcripts are older than bsd.
# Of other tools it is what their answers hold always.
_RESTORED = {"restored", "entry_id", "keys_restored", "sizes_bytes"}
_NEEDED: Mapping[str, tuple[set[str], ...]] = {
    "restore": (_RESTORED,),
    "restore_remote": (_RESTORED,),
    "purge_control": (
        {"session", "total_entries", "extracted_entries", "extracted_ids", "entries"},
        _RESTORED,
        {"updated", "entry_id", "extractable"},
    ),
    "context": ({"success", "replacements", "errors"},),
    "search_extracted": ({"session", "query", "results"},),
    "read_extracted": ({"entry_id", "texts"},),
}
# What our commands print, and what the original tool answered in sessions that are older than bsd.
_PLAIN = re.compile(
    r"Restored \d+ keys? for entry |Set _extractable=|Session: .*\nTotal entries: |Restore failed: "
    r"|Error: (session|entry|value) parameter is required|Error: Unknown action '"
)
_DECODER = json.JSONDecoder()
_MOST_IDS = 50
_MOST_SHOWN = 20
_LONGEST = 4000  # characters


def read_answer(text: str) -> dict[str, Any] | None:
    """Read a result's text as an answer: a JSON object, behind which texts may stand that it names.

    Over MCP these are blocks of their own.
    """
    try:
        answer, end = _DECODER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    return answer if gives_text(answer) or not text.lstrip()[end:].strip() else None


def gives_text(answer: dict[str, Any] | None) -> bool:
    """Whether an answer of ours carries text that was taken out of a session."""
    texts = None if answer is None else answer.get("texts")
    return isinstance(texts, dict) and bool(texts)


def is_for_later(answer: dict[str, Any] | None) -> bool:
    """Whether an answer of ours says that the value comes back inline after the turn."""
    return answer is not None and answer.get("inline") == Inline.AFTER_THE_TURN


def is_answered(tool: str, text: str) -> bool:
    """Whether a result's text is what one of our doors said when it had dealt with a call.

    Not so: that the session was busy, that a value comes back after the turn, and what others say,
    for instance that there is no such tool.
    """
    if _PLAIN.match(text):
        return True
    answer = read_answer(text)
    if answer is None or answer.get("busy") is True or is_for_later(answer):
        return False
    if isinstance(answer.get("error"), str):
        return set(answer) <= {"error", "hint", "errors"}
    return any(names <= set(answer) for names in _needed(tool))


def _needed(tool: str) -> tuple[set[str], ...]:
    answer: Any = TOOLS[tool].answer
    always = {said.name or one.name for one, said in told_fields(answer) if not said.omit}
    return _NEEDED.get(tool, (always,))


def told(asked: Any, answer: Mapping[str, Any]) -> str:
    """Say what has come of a call, by its arguments and its answer as JSON."""
    match asked:
        case Restore():
            return _restored(answer)
        case ReadExtracted():
            return _read(answer)
        case SetExtractable(_, value):
            shown = "unset" if value is None else str(value).lower()
            return f"[_extractable={shown} for entry {answer['entry_id']}]"
        case ChangeContext(action):
            done = f"{len(answer['replacements'])} done, {_saved(answer)} tokens saved"
            return f"[{_cut('; '.join([f'{action}: {done}', *answer['warnings']]))}]"
        case GetContext():
            return _context(answer)
        case SearchExtracted(query):
            return _found(query, answer["results"])
        case _:
            return f"[{_cut(json.dumps(answer, ensure_ascii=False))}]"


def told_error(tool: str, answer: Mapping[str, Any]) -> str:
    """Say why a call has failed; `answer` is that of an error."""
    texts = [answer["error"]] if "error" in answer else list(answer["errors"])
    if hint := answer.get("hint"):
        texts.append(f"Try: {hint}")
    return f"[{tool} failed: {_cut('; '.join(texts))}]"


def _restored(answer: Mapping[str, Any]) -> str:
    parts = []
    if answer["keys_restored"]:
        keys = ", ".join(answer["keys_restored"])
        parts.append(f"restored entry {answer['entry_id']}: {keys}")
    parts += [f"{key}: {why}" for key, why in answer.get("unavailable", {}).items()]
    if suggestion := answer.get("suggestion"):
        parts.append(suggestion)
    return f"[{_cut('. '.join(part.rstrip('.') for part in parts)) or 'nothing to restore'}]"


def _read(answer: Mapping[str, Any]) -> str:
    """The texts, each below its key if there are several; what follows them is said at the end."""
    texts = answer["texts"]
    parts = [text if len(texts) == 1 else f"{key}:\n{text}" for key, text in texts.items()]
    for name in ("beside", "unavailable"):
        parts += [f"{key}: {what}" for key, what in answer.get(name, {}).items()]
    if following := answer.get("next"):
        more = f"{answer['characters_left']} more characters: read_extracted with"
        parts.append(f"[{more} keys {following['keys']} and offset {following['offset']}]")
    return "\n\n".join(parts) or "[nothing to read]"


def _saved(answer: Mapping[str, Any]) -> int:
    return sum(int(one["tokensSaved"]) for one in answer["replacements"])


def _context(answer: Mapping[str, Any]) -> str:
    """The originals' words for get_context."""
    ids = [str(one) for one in answer["extracted_ids"]]
    shown = [f"  - {one}" for one in ids[:_MOST_IDS]]
    if len(ids) > _MOST_IDS:
        shown.append(f"  … and {len(ids) - _MOST_IDS} more")
    lines = [
        f"Session: {answer['session']}",
        f"Total entries: {answer['total_entries']}",
        f"Extracted entries: {answer['extracted_entries']}",
        "",
        "Extracted entry IDs:",
        *(shown or ["  (none)"]),
    ]
    largest = sorted(answer["entries"], key=lambda entry: -int(entry["size_bytes"]))[:_MOST_SHOWN]
    if largest:
        lines += ["", "Largest entries (hash, id, type, bytes):"]
        lines += [
            f"  {one['hash']} {one['id']} {one['type']} {one['size_bytes']}" for one in largest
        ]
    return "\n".join(lines)


def _found(query: str, results: list[Mapping[str, Any]]) -> str:
    if not results:
        return f"[nothing that was extracted holds {query}]"
    return _cut("\n".join(f"{one['entry_id']}: {one['snippet']}" for one in results))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

"""One entry, read in the words that dialects share: id, type, role, time, ties, blocks, usage.

What only one program writes is its own dialect's; here stands what several have in common, and
what nobody writes but bsd.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

from bsd.agents.marker import is_placeholder
from bsd.foundation.immutable import immutable
from bsd.foundation.value_path import ValuePath
from bsd.text.reader import parse_entry

Entry = dict[str, Any]
# A foreign file would be read to its end, were there no bound.
LINES_LOOKED_AT = 50
# Names that say of which type a value is (SPEC §3). A name that is not here falls through.
TYPE_OF_NAME = {
    "thinking": "thinking",
    "tool_call": "tool_call",
    "toolCall": "tool_call",
    "tool_result": "tool_result",
    "toolResult": "tool_result",
    "tool": "tool_result",
    "bashExecution": "tool_result",
    "assistant": "assistant",
    "ai": "assistant",
    "user": "user",
    "human": "user",
    "system": "system",
}
# Members that hold a conversation together. They are never extracted, at whatever depth: none
# holds anything long in a sound file, and one that does is somebody's key to something.
_STRUCTURAL = frozenset(
    (
        "id",
        "type",
        "customType",
        "timestamp",
        "role",
        "parentId",
        "toolCallId",
        "toolUseId",
        "tool_call_id",
        "tool_use_id",
        "version",
        "cwd",
        "modelId",
        "provider",
        "thinkingLevel",
        "firstKeptEntryId",
        "fromHook",
        "tokensBefore",
        "_extractable",
        "_restored",
        "_extracted",
        "_redacted",
        "_pruned",
        "_pruned_type",
        "_has_tool_calls",
    )
)
REDACTED = "_redacted"
# Members whose names end like those of links, and that link something else.
_OTHER_IDS = frozenset(("parentId", "toolCallId", "toolUseId", "callId"))
_AUTHOR = ("role", "api", "provider", "model")
_ARGUMENTS = ("arguments", "input", "args", "parameters")
_THINKING = frozenset(("thinking", "redacted_thinking"))
LONGEST_TITLE = 200  # characters
_JOINERS = "\u200c\u200d"  # emoji and several scripts need them
_LOOKED_AT = 20_000  # characters of a prompt
# What programs put around or before what a person typed: `<system-reminder>…</system-reminder>`.
_WRAPPED = re.compile(r"\s*<([a-z]+[-_][a-z_-]*)\b[^<>]*>.*?</\1>\s*", re.DOTALL)
_OPEN_WRAPPER = re.compile(r"\s*</?[a-z]+[-_][a-z_-]*\b[^<>]*>")
_COMMAND_ALONE = re.compile(r"/[A-Za-z][\w:-]*\s*")


def is_structural(key: str) -> bool:
    """Whether a member of this name is never extracted."""
    return key in _STRUCTURAL or key.startswith("__")


def text_of(value: Any) -> str | None:
    """Return a string that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def message_of(entry: Entry) -> Entry:
    """Return the entry's message, an empty one if there is none."""
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def payload_of(entry: Entry) -> Entry:
    """Return what an entry wraps, an empty one if it wraps nothing."""
    payload = entry.get("payload")
    return payload if isinstance(payload, dict) else {}


def entry_id(entry: Entry) -> str | None:
    """Return the name of an entry: `__id`, else `id`."""
    return text_of(entry.get("__id")) or text_of(entry.get("id"))


def entry_type(entry: Entry) -> str | None:
    """Return the type of values that stand in no block of their own (SPEC §3)."""
    names = (
        entry.get("customType"),
        entry.get("type"),
        message_of(entry).get("role"),
        entry.get("role"),
    )
    for name in names:
        if isinstance(name, str) and name in TYPE_OF_NAME:
            return TYPE_OF_NAME[name]
    return _inferred_type(entry)


def _inferred_type(entry: Entry) -> str | None:
    data = entry.get("data")
    inside: Entry = data if isinstance(data, dict) else {}
    if "thinking" in entry or "thinking" in inside:
        return "thinking"
    if "tool_result" in entry or "result" in entry or "output" in entry or "result" in inside:
        return "tool_result"
    return None


def error_text(entry: Entry) -> str | None:
    """Return what an answer says of the error by which it ended."""
    return text_of(message_of(entry).get("errorMessage"))


def entry_role(entry: Entry) -> str | None:
    """Return the role that rules compare."""
    role = text_of(message_of(entry).get("role")) or text_of(entry.get("role"))
    return role or ("agent" if entry.get("customType") == "thinking" else None)


def entry_time_ms(entry: Entry) -> float | None:
    """Return when an entry was written, by seed 000's sources; None if none can be read."""
    for key in ("timestamp", "__ts"):
        if key in entry and (time := time_ms(entry[key])) is not None:
            return time
    time = time_ms(message_of(entry).get("created_at"))
    return time_ms(entry.get("time")) if time is None else time


def time_ms(value: Any) -> float | None:
    """Read a time, ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970."""
    if not isinstance(value, str):
        return _milliseconds(value)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


# --- the first entries of a file ---


def first_entries(first_lines: Iterable[bytes], most: int = LINES_LOOKED_AT) -> Iterator[Entry]:
    """The entries among the first `most` lines; what is not empty JSON objects is passed over."""
    return (entry for raw in islice(first_lines, most) if (entry := parse_entry(raw)))


# --- what ties it to others, and a call to its arguments ---


def mentions(entry: Entry) -> list[str]:
    """Ids of entries that this one names beside its parent: `firstKeptEntryId`, `targetId`, …."""
    return [
        value
        for key, value in entry.items()
        if key.endswith("Id") and key not in _OTHER_IDS and isinstance(value, str)
    ]


def arguments_at(holder: Entry, path: ValuePath) -> ValuePath | None:
    """Where the arguments of a call stand that is this object, at a path; None if it has none."""
    return next(((*path, key) for key in _ARGUMENTS if key in holder), None)


def same_author(one: Entry, other: Entry) -> bool:
    """Whether the same model wrote two messages, by the same way: their blocks may stand in one."""
    messages = (message_of(one), message_of(other))
    return len({tuple(str(m.get(key)) for key in _AUTHOR) for m in messages}) == 1


def says_something(block: object) -> bool:
    """Whether a block can stand alone in a message: thinking without an answer is refused."""
    if not isinstance(block, dict):
        return block not in (None, "")
    if block.get("type") == "text":
        return bool(text_of(block.get("text")) and str(block["text"]).strip())
    return block.get("type") not in _THINKING


# --- the model that wrote it, and the tokens it used ---

# By our word for it, the names that writers of transcripts use.
_TOKENS: Mapping[str, tuple[str, ...]] = {
    "input": ("input", "input_tokens", "inputTokens", "prompt_tokens"),
    "output": ("output", "output_tokens", "outputTokens", "completion_tokens"),
    "cache_read": (
        *("cacheRead", "cache_read_input_tokens", "cacheReadTokens", "cached_input_tokens"),
    ),
    "cache_write": ("cacheWrite", "cache_creation_input_tokens", "cacheWriteTokens"),
    "total": ("totalTokens", "total_tokens", "total"),
}


def model_of(entry: Entry) -> str | None:
    """Return the model that an entry names as its author, or that it changes to."""
    return (
        text_of(message_of(entry).get("model"))
        or text_of(entry.get("model"))
        or text_of(entry.get("modelId"))
        or text_of(payload_of(entry).get("model"))
    )


def answer_of(entry: Entry) -> str | None:
    """Return the answer that an entry is a part of: its tokens stand in each of its parts."""
    return text_of(message_of(entry).get("id"))


def tokens_of(entry: Entry) -> dict[str, int]:
    """Return the tokens that an entry counts, by our words; empty if it counts none.

    A missing total is the sum of the others.
    """
    usage = message_of(entry).get("usage") or entry.get("usage") or _last_usage(entry)
    if not isinstance(usage, dict):
        return {}
    found = {word: _first_count(usage, names) for word, names in _TOKENS.items()}
    if not any(found.values()):
        return {}
    found["total"] = found["total"] or sum(found.values())
    return found


@immutable
class Sent:
    """So many tokens were sent with an answer, or, with it, will be with the next one."""

    tokens: int
    with_answer: bool


def sent_tokens(entry: Entry) -> Sent | None:
    """Return what an entry counts of the tokens that were sent, those in a cache included."""
    last = _last_usage(entry)
    if isinstance(last, dict):
        # Noted after the answer; what is in a cache is counted among the input here.
        output = _first_count(last, _TOKENS["output"])
        thought = _first_count(last, ("reasoning_output_tokens",))
        tokens = _first_count(last, _TOKENS["input"]) + max(0, output - thought)
        return Sent(tokens, with_answer=True) if tokens else None
    usage = message_of(entry).get("usage") or entry.get("usage")
    if not isinstance(usage, dict):
        return None
    tokens = _first_count(usage, _TOKENS["input"])
    if not _counts_cached_as_input(usage):
        tokens += _first_count(usage, _TOKENS["cache_read"])
        tokens += _first_count(usage, _TOKENS["cache_write"])
    return Sent(tokens, with_answer=False) if tokens else None


def _counts_cached_as_input(usage: Mapping[str, Any]) -> bool:
    return "prompt_tokens" in usage or "cached_input_tokens" in usage


def _last_usage(entry: Entry) -> Any:
    if "payload" not in entry:  # as in most dialects
        return None
    info = payload_of(entry).get("info")
    return info.get("last_token_usage") if isinstance(info, dict) else None


def _first_count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        count = usage.get(name)
        if type(count) is int and 0 < count < 1 << 53:  # and no bool
            return count
    return 0


# --- how a session is called: by a name it was given, else by what was first asked ---


class Rank(IntEnum):
    """What a title is worth. The first prompt counts, and of names the last of the best rank."""

    PROMPT = 0
    SUMMARY = 1  # what a program made of an earlier part
    MADE = 2  # by a model, for the whole
    GIVEN = 3  # by a person


class Title(NamedTuple):
    """How an entry would call its session."""

    text: str
    rank: Rank


def better(old: Title | None, new: Title | None) -> Title | None:
    """Of two, `new` from a later line, the one by which the session is called."""
    if old is None or new is None:
        return new or old
    later = new.rank > old.rank or (new.rank == old.rank and new.rank is not Rank.PROMPT)
    return new if later else old


def named(value: Any, rank: Rank) -> Title | None:
    """The title that a member of an entry gives, if it gives one."""
    text = in_short(value) if isinstance(value, str) else ""
    return Title(text, rank) if text else None


def asked(texts: list[str], before: re.Pattern[str] | None = None) -> Title | None:
    """The title that a prompt of these texts would be; None if nothing in it is a person's words.

    `before` is what the program in question puts in front of them.
    """
    for text in texts:
        if (words := _typed(text[:_LOOKED_AT], before)) and not is_placeholder(words):
            return Title(words, Rank.PROMPT)
    return None


def _typed(text: str, before: re.Pattern[str] | None) -> str | None:
    """What a person typed of a text, on one line; None if nothing, or a command alone."""
    text = text.strip()
    while True:
        found = _WRAPPED.match(text) or (before.match(text) if before else None)
        if found is None or found.end() == 0:
            break
        text = text[found.end() :]
    if _OPEN_WRAPPER.match(text) or _COMMAND_ALONE.fullmatch(text):
        return None
    return in_short(text) or None


def in_short(text: str) -> str:
    """A text as a title: on one line, no longer than titles are, nothing in it but what is seen."""
    words = " ".join(text[: 4 * LONGEST_TITLE].split())
    line = words
    if not words.isprintable():
        line = "".join(c for c in words if c.isprintable() or c in _JOINERS)
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


def texts_in(content: Any) -> list[str]:
    """The texts of a content that is a string, or a list of blocks with `text`."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else ()
    found = (block.get("text") for block in blocks if isinstance(block, dict))
    return [text for text in found if isinstance(text, str)]


def entry_key(entry: object) -> int:
    """Eight bytes that stand for an entry's id: of a root's entries, few share them."""
    text = str(entry).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)

"""One entry, read in the words that dialects share: id, type, role, time, ties, blocks, usage.

A member that only one program writes belongs to its own format; here stand the members that several
share, and those that bsd alone writes: placeholders, and the member `_extracted`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import orjson

from bsd.core.files import LARGEST_LINE
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import ValuePath, value_at

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
# holds anything long in a sound file, and one that does is a key to something.
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
# Members whose names end like those of links, and that link something else.
_OTHER_IDS = frozenset(("parentId", "toolCallId", "toolUseId", "callId"))
_AUTHOR = ("role", "api", "provider", "model")
_ARGUMENTS = ("arguments", "input", "args", "parameters")
_THINKING = frozenset(("thinking", "redacted_thinking"))
_PROOFS = ("signature", "thinkingSignature", "data")  # in a block of thinking
# Members with the text of an entry that holds no values, and the same of an entry inside another.
_OTHER_TEXTS = ("summary", "content", "text", "message", "name", "label", "customTitle", "aiTitle")
_OTHER_TEXTS_OF_A_PAYLOAD = ("message", "text")


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
    """Return the entry that an entry wraps, an empty one if there is none."""
    payload = entry.get("payload")
    return payload if isinstance(payload, dict) else {}


def entry_id(entry: Entry) -> str | None:
    """Return the name of an entry: `__id`, else `id`."""
    own = text_of(entry["__id"]) if "__id" in entry else None  # the seeds' entries alone have it
    return own or text_of(entry.get("id"))


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
    """Return the message of the error by which an answer ended."""
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
    """Read a time: ISO 8601 (UTC unless it says otherwise), or milliseconds or seconds since 1970.

    A number below 1e11 is seconds: as milliseconds it would lie before March 1973.
    """
    if not isinstance(value, str):
        return _milliseconds(value)
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() * 1000
    except (ValueError, OverflowError):
        return None


_LEAST_MILLISECONDS = 1e11


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return number * 1000 if abs(number) < _LEAST_MILLISECONDS else number


# --- the first entries of a file ---


def first_entries(first_lines: Iterable[bytes], most: int = LINES_LOOKED_AT) -> Iterator[Entry]:
    """The entries among the first `most` lines; lines without an entry are passed over."""
    return (entry for raw in islice(first_lines, most) if (entry := parse_entry(raw)))


# --- the ids that tie it to others, and a call to its arguments ---


def mentions(entry: Entry) -> list[str]:
    """Ids of entries that this one names beside its parent: `firstKeptEntryId`, `targetId`, …."""
    return [
        value
        for key, value in entry.items()
        if key.endswith("Id") and key not in _OTHER_IDS and isinstance(value, str)
    ]


def arguments_at(holder: Entry, path: ValuePath) -> ValuePath | None:
    """Return the path of a call's arguments in this object, at a path; None if it has none."""
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


def proof_size(entry: Entry) -> int:
    """Return the characters of the signatures of thinking, and of thinking that is encrypted."""
    size = 0
    if "payload" in entry:
        size += len(text_of(payload_of(entry).get("encrypted_content")) or "")
    blocks = message_of(entry).get("content") if "message" in entry else None
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") in _THINKING:
            size += sum(len(text_of(block.get(key)) or "") for key in _PROOFS)
    return size


def other_text(entry: Entry) -> tuple[ValuePath, str] | None:
    """Return the text of an entry without values: a summary, a name, a note; and its path."""
    for key in _OTHER_TEXTS:
        if text := text_of(entry.get(key)):
            return (key,), text
    for key in _OTHER_TEXTS_OF_A_PAYLOAD:
        if text := text_of(payload_of(entry).get(key)):
            return ("payload", key), text
    return None


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


@dataclass(frozen=True, slots=True)
class Sent:
    """So many tokens were sent with an answer, or, with it, will be with the next one."""

    tokens: int
    with_answer: bool


def sent_tokens(entry: Entry) -> Sent | None:
    """Return the number of tokens that were sent, by an entry's count, cached ones included."""
    last = _last_usage(entry) if "payload" in entry else None
    if isinstance(last, dict):
        # Noted after the answer; cached tokens are counted among the input here.
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


def context_limit(entry: Entry) -> int | None:
    """Return the most tokens that the model takes, if an entry's count of tokens says it."""
    info = payload_of(entry).get("info")
    limit = info.get("model_context_window") if isinstance(info, dict) else None
    return limit if type(limit) is int and limit > 0 else None


def _first_count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        count = usage.get(name)
        if type(count) is int and 0 < count < 1 << 53:  # and no bool
            return count
    return 0


def entry_key(entry: object) -> int:
    """Eight bytes that stand for an entry's id: of a root's entries, few share them."""
    text = str(entry).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)


# --- the members that bsd writes into an entry whose values left it ---

MARKER = "_extracted"
RESTORED = "_restored"
EXTRACTABLE = "_extractable"
REDACTED = "_redacted"

PLACEHOLDER_START = "[[extracted-"
PLACEHOLDER_END = "]]"

# RFC 3986's unreserved characters: those that a safe entry id may hold.
_ID = r"[A-Za-z0-9._~-]+"
_SAFE_ID = re.compile(_ID)
_PLACEHOLDER = re.compile(rf"\[\[extracted-({_ID})\]\]")
# Programs' ids have at most 64 characters; a placeholder shall stay shorter than most values.
LONGEST_ID = 200  # characters


def is_safe_id(entry_id: str) -> bool:
    """Return whether an id may stand in a placeholder, a file name and a URL.

    Entries whose id is not safe are not extracted. Placeholders with longer ids than
    `LONGEST_ID`, which earlier versions wrote, are still read.
    """
    if len(entry_id) > LONGEST_ID or entry_id in {".", ".."}:
        return False
    return _SAFE_ID.fullmatch(entry_id) is not None


def placeholder(entry_id: str) -> str:
    """Return the text that replaces each extracted value of an entry."""
    return f"{PLACEHOLDER_START}{entry_id}{PLACEHOLDER_END}"


def is_placeholder(text: str) -> bool:
    """Whether a text is a placeholder, of any entry, and nothing else."""
    return _PLACEHOLDER.fullmatch(text) is not None


def ends_in_placeholder(text: str) -> str | None:
    """Return the entry named by the placeholder at the end of a text; kept text may precede it."""
    if not text.endswith(PLACEHOLDER_END):
        return None
    start = text.rfind(PLACEHOLDER_START)  # no id contains this, so the last one decides
    found = _PLACEHOLDER.fullmatch(text, start) if start >= 0 else None
    return found[1] if found else None


def standing_at(entry: dict[str, Any], path: ValuePath) -> str | None:
    """Which entry the placeholder names that stands where a value was; None: there is none.

    In a text that ends with it, or, for a block, in the text block that took its place. It names
    the entry that was extracted, whatever id a copy of it has. If there is none, another program or
    a person has changed the value since, and bsd leaves it as it is.
    """
    value = value_at(entry, path)
    if isinstance(value, dict) and str(value.get("type")).endswith("text"):
        value = value.get("text")
    return ends_in_placeholder(value) if isinstance(value, str) else None


def mentioned_ids(text: str) -> list[str]:
    """List the entries whose placeholders stand in a text."""
    return _PLACEHOLDER.findall(text)


@dataclass(frozen=True, slots=True)
class Marker:
    """The `_extracted` member: where the entry's original line is kept."""

    ref: str  # file name without ending
    hash: str  # `sha256:…` of the stored file
    size: int  # bytes of the stored file
    keys: tuple[str, ...]  # paths of the values that are away
    at: str  # ISO 8601, Z

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Marker | None:
        """Read an entry's marker; None if it has none or `_extracted` is not ours."""
        member = entry.get(MARKER)
        if not isinstance(member, dict):
            return None
        ref, hash_, keys = member.get("ref"), member.get("hash"), member.get("keys")
        if not isinstance(ref, str) or not isinstance(hash_, str) or not isinstance(keys, list):
            return None
        if not keys or not all(isinstance(key, str) for key in keys):
            return None
        size, at = member.get("size"), member.get("at")
        return cls(
            ref,
            hash_,
            size if type(size) is int and 0 <= size <= LARGEST_LINE else 0,
            tuple(keys),
            at if isinstance(at, str) else "",
        )

    def to_json(self) -> bytes:
        """Write the member's value as it stands in the line."""
        member = {
            "ref": self.ref,
            "hash": self.hash,
            "size": self.size,
            "keys": self.keys,
            "at": self.at,
        }
        try:
            return orjson.dumps(member)
        except TypeError:  # lone surrogates in names that another program wrote
            return json.dumps(member, separators=(",", ":")).encode()

"""Reads members that several formats share: id, type, role, time, ties, blocks, usage.

Members that only one program writes belong to the module of its format. This module also has the
members that only bsd writes: placeholders, and the member `_extracted`.
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
from typing import Any, NamedTuple

import orjson

from bsd.core.files import LARGEST_LINE
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import ValuePath, value_at

Entry = dict[str, Any]
# Limit of lines, so that a foreign file is not read to its end.
LINES_LOOKED_AT = 50
# Names that determine the type of a value (SPEC §3). Other names are ignored.
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
# Members that tie a conversation together. They are never extracted, at any depth: in a sound file
# they are short, and a long value may serve as a key.
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
# Members whose names end like references to entries, but refer to other things.
_OTHER_IDS = frozenset(("parentId", "toolCallId", "toolUseId", "callId"))
_AUTHOR = ("role", "api", "provider", "model")
_ARGUMENTS = ("arguments", "input", "args", "parameters")
_THINKING = frozenset(("thinking", "redacted_thinking"))
_PROOFS = ("signature", "thinkingSignature", "data")  # members of a block of thinking
# Members with the text of an entry without values, and of an entry inside another entry.
_OTHER_TEXTS = ("summary", "content", "text", "message", "name", "label", "customTitle", "aiTitle")
_OTHER_TEXTS_OF_A_PAYLOAD = ("message", "text")


def is_structural(key: str) -> bool:
    """Return whether a member of this name is never extracted."""
    return key in _STRUCTURAL or key.startswith("__")


def text_of(value: Any) -> str | None:
    """Return a non-empty string, or None for any other value."""
    return value if isinstance(value, str) and value else None


def message_of(entry: Entry) -> Entry:
    """Return the entry's message, or an empty object."""
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def payload_of(entry: Entry) -> Entry:
    """Return the entry that an entry wraps, or an empty object."""
    payload = entry.get("payload")
    return payload if isinstance(payload, dict) else {}


def entry_id(entry: Entry) -> str | None:
    """Return the id of an entry: `__id`, else `id`."""
    own = text_of(entry["__id"]) if "__id" in entry else None  # only entries of the seeds have it
    return own or text_of(entry.get("id"))


def entry_type(entry: Entry) -> str | None:
    """Return the type of values that are in no typed block (SPEC §3)."""
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
    """Return the error message with which an answer ended."""
    return text_of(message_of(entry).get("errorMessage"))


def entry_role(entry: Entry) -> str | None:
    """Return the role that rules compare."""
    role = text_of(message_of(entry).get("role")) or text_of(entry.get("role"))
    return role or ("agent" if entry.get("customType") == "thinking" else None)


def entry_time_ms(entry: Entry) -> float | None:
    """Return the time of writing in epoch milliseconds, from the sources in seed 000, or None."""
    for key in ("timestamp", "__ts"):
        if key in entry and (time := time_ms(entry[key])) is not None:
            return time
    time = time_ms(message_of(entry).get("created_at"))
    return time_ms(entry.get("time")) if time is None else time


def time_ms(value: Any) -> float | None:
    """Return a time in epoch milliseconds: from ISO 8601 (default UTC), or a number.

    A number below 1e11 counts as seconds: as milliseconds it would lie before March 1973. None if
    the value is not a time.
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
    """Yield the entries in the first `most` lines; lines without an entry are skipped."""
    return (entry for raw in islice(first_lines, most) if (entry := parse_entry(raw)))


# --- ids that tie an entry to others, and a call to its arguments ---


def mentions(entry: Entry) -> list[str]:
    """Return ids of entries that this entry names, except its parent: `firstKeptEntryId`, …."""
    return [
        value
        for key, value in entry.items()
        if key.endswith("Id") and key not in _OTHER_IDS and isinstance(value, str)
    ]


def arguments_at(holder: Entry, path: ValuePath) -> ValuePath | None:
    """Return the path of the arguments of a call, the object at `path`; None if it has none."""
    return next(((*path, key) for key in _ARGUMENTS if key in holder), None)


def same_author(one: Entry, other: Entry) -> bool:
    """Return whether one model and API wrote both messages, so that blocks may be merged."""
    messages = (message_of(one), message_of(other))
    return len({tuple(str(m.get(key)) for key in _AUTHOR) for m in messages}) == 1


def says_something(block: object) -> bool:
    """Return whether a block can stand alone in a message; APIs refuse thinking alone."""
    if not isinstance(block, dict):
        return block not in (None, "")
    if block.get("type") == "text":
        return bool(text_of(block.get("text")) and str(block["text"]).strip())
    return text_of(block.get("type")) not in _THINKING


def proof_size(entry: Entry) -> int:
    """Return the characters of thinking signatures, and of encrypted thinking."""
    size = 0
    if "payload" in entry:
        size += len(text_of(payload_of(entry).get("encrypted_content")) or "")
    blocks = message_of(entry).get("content") if "message" in entry else None
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and text_of(block.get("type")) in _THINKING:
            size += sum(len(text_of(block.get(key)) or "") for key in _PROOFS)
    return size


def other_text(entry: Entry) -> tuple[ValuePath, str] | None:
    """Return path and text of an entry without values: a summary, a name, a note."""
    for key in _OTHER_TEXTS:
        if text := text_of(entry.get(key)):
            return (key,), text
    for key in _OTHER_TEXTS_OF_A_PAYLOAD:
        if text := text_of(payload_of(entry).get(key)):
            return ("payload", key), text
    return None


# --- model and tokens ---

# By bsd's name for each figure: the names that programs use in transcripts.
_TOKENS: Mapping[str, tuple[str, ...]] = {
    "input": ("input", "input_tokens", "inputTokens", "prompt_tokens"),
    "output": ("output", "output_tokens", "outputTokens", "completion_tokens"),
    "cache_read": (
        *("cacheRead", "cache_read_input_tokens", "cacheReadTokens", "cached_input_tokens"),
    ),
    "cache_write": (
        *("cacheWrite", "cache_creation_input_tokens", "cacheWriteTokens"),
        "cache_write_input_tokens",
    ),
    "total": ("totalTokens", "total_tokens", "total"),
}


def model_of(entry: Entry) -> str | None:
    """Return the model that wrote an entry, or to which the entry switches."""
    return (
        text_of(message_of(entry).get("model"))
        or text_of(entry.get("model"))
        or text_of(entry.get("modelId"))
        or text_of(payload_of(entry).get("model"))
        or text_of(_record_of(entry).get("model"))
    )


_MOST_DOLLARS = 1e6  # no answer costs more; larger numbers, NaN and infinity are damage


def answer_of(entry: Entry) -> str | None:
    """Return the id of the answer that an entry is part of; each part repeats the token counts."""
    own = text_of(message_of(entry).get("id"))
    return text_of(entry.get("id")) if own is None and "tokens" in entry else own


def tokens_of(entry: Entry) -> dict[str, int]:
    """Return the token counts of an entry, by bsd's names; empty if it has none.

    A missing total is the sum of the others.
    """
    usage = _usage_in(entry) or _last_usage(entry) or _usage_in_record(entry)
    if not isinstance(usage, dict):
        return {}
    found = {word: _first_count(usage, names) for word, names in _TOKENS.items()}
    if not any(found.values()):
        return {}
    found["total"] = found["total"] or sum(found.values())
    return found


def cost_of(entry: Entry) -> float:
    """Return the cost of an answer in US dollars, as its program recorded it, or 0."""
    usage = message_of(entry).get("usage")
    noted = usage.get("cost") if isinstance(usage, dict) else None
    cost = noted.get("total") if isinstance(noted, dict) else entry.get("costUSD")
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return 0.0
    return float(cost) if 0 < cost < _MOST_DOLLARS else 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """The tokens that were sent for an answer, or that will be sent after it."""

    tokens: int
    with_answer: bool  # they include the answer, so the next request sends them


def sent_tokens(entry: Entry) -> Sent | None:
    """Return the number of sent tokens by an entry's count, including cached tokens."""
    last = _last_usage(entry) if "payload" in entry else None
    if isinstance(last, dict):
        # Recorded after the answer; the input includes cached tokens here.
        output = _first_count(last, _TOKENS["output"])
        thought = _first_count(last, ("reasoning_output_tokens",))
        tokens = _first_count(last, _TOKENS["input"]) + max(0, output - thought)
        return Sent(tokens, with_answer=True) if tokens else None
    usage = _usage_in(entry)
    if not isinstance(usage, dict):
        return None
    tokens = _first_count(usage, _TOKENS["input"])
    if not _counts_cached_as_input(usage):
        tokens += _first_count(usage, _TOKENS["cache_read"])
        tokens += _first_count(usage, _TOKENS["cache_write"])
    return Sent(tokens, with_answer=False) if tokens else None


class Usage(NamedTuple):
    """The tokens of one request, as its provider charged them."""

    input: int  # neither read from the cache nor written to it
    read: int  # read from the cache
    written: int  # written to the cache; 0 for providers that charge nothing for it
    output: int

    @property
    def prompt(self) -> int:
        """Return the tokens of the whole prompt."""
        return self.input + self.read + self.written


def usage_of(entry: Entry) -> Usage | None:
    """Return the tokens of the request that an entry reports; None if it reports none.

    The entries of one answer (`answer_of`) repeat the same figures.
    """
    usage = _usage_in(entry) or _last_usage(entry)
    if not isinstance(usage, dict):
        return None
    sent, read, written, output = (
        _first_count(usage, _TOKENS[name])
        for name in ("input", "cache_read", "cache_write", "output")
    )
    if _counts_cached_as_input(usage):
        sent = max(0, sent - read - written)
    found = Usage(sent, read, written, output)
    return found if found.prompt else None


def provider_of(entry: Entry) -> str | None:
    """Return the provider that answered, if an entry names it."""
    return text_of(message_of(entry).get("provider")) or text_of(entry.get("provider"))


def _counts_cached_as_input(usage: Mapping[str, Any]) -> bool:
    return "prompt_tokens" in usage or "cached_input_tokens" in usage


def _usage_in(entry: Entry) -> Any:
    usage = message_of(entry).get("usage") or entry.get("usage")
    if usage is not None:
        return usage
    return _usage_metadata(entry) if "usageMetadata" in entry else _tokens(entry.get("tokens"))


def _record_of(entry: Entry) -> Entry:
    """Return the request of a sub-agent or of the session that Copilot records in a line."""
    if entry.get("type") != "session.usage_record":  # as in most formats
        return {}
    data = entry.get("data")
    usage = data.get("usage") if isinstance(data, dict) else None
    return usage if isinstance(usage, dict) else {}


def _usage_in_record(entry: Entry) -> dict[str, int]:
    """Return the token counts of such a request; its input includes cached tokens."""
    if not (told := _record_of(entry)):
        return {}
    names = ("cacheReadTokens", "cacheWriteTokens", "outputTokens")
    usage = {name: _first_count(told, (name,)) for name in names}
    cached = usage["cacheReadTokens"] + usage["cacheWriteTokens"]
    return {**usage, "inputTokens": max(0, _first_count(told, ("inputTokens",)) - cached)}


def _usage_metadata(entry: Entry) -> dict[str, int] | None:
    """Return token counts in the form of Gemini's API under other names; None if there are none.

    Thinking is part of the total only, and is charged as output.
    """
    told = entry["usageMetadata"]
    if not isinstance(told, dict):
        return None
    prompt, total = (_first_count(told, (f"{name}TokenCount",)) for name in ("prompt", "total"))
    return {
        "prompt_tokens": prompt,
        "cached_input_tokens": _first_count(told, ("cachedContentTokenCount",)),
        "completion_tokens": max(total - prompt, _first_count(told, ("candidatesTokenCount",))),
        "total_tokens": total,
    }


def _tokens(told: Any) -> dict[str, int] | None:
    """Return the token counts of Gemini CLI under other names; None if there are none."""
    if not isinstance(told, dict):
        return None
    output, thoughts = (_first_count(told, (name,)) for name in ("output", "thoughts"))
    return {
        "prompt_tokens": _first_count(told, ("input",)),
        "cached_input_tokens": _first_count(told, ("cached",)),
        "completion_tokens": output + thoughts,
        "total_tokens": _first_count(told, ("total",)),
    }


def _last_usage(entry: Entry) -> Any:
    if "payload" not in entry:  # as in most formats
        return None
    info = payload_of(entry).get("info")
    return info.get("last_token_usage") if isinstance(info, dict) else None


def context_limit(entry: Entry) -> int | None:
    """Return the size of the model's context in tokens, if an entry's token count states it."""
    info = payload_of(entry).get("info")
    limit = info.get("model_context_window") if isinstance(info, dict) else None
    return limit if type(limit) is int and limit > 0 else None


def _first_count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        count = usage.get(name)
        if type(count) is int and 0 < count < 1 << 53:  # excludes bool
            return count
    return 0


def entry_key(entry: object) -> int:
    """Return a 64-bit hash of an entry's id; few entries of a root share a hash."""
    text = str(entry).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)


# --- members that bsd writes into an entry whose values were extracted ---

MARKER = "_extracted"
RESTORED = "_restored"
EXTRACTABLE = "_extractable"
REDACTED = "_redacted"

PLACEHOLDER_START = "[[extracted-"
PLACEHOLDER_END = "]]"

# The characters of a safe entry id: the unreserved characters of RFC 3986.
_ID = r"[A-Za-z0-9._~-]+"
_SAFE_ID = re.compile(_ID)
_PLACEHOLDER = re.compile(rf"\[\[extracted-({_ID})\]\]")
# Programs' ids have at most 64 characters; placeholders should be shorter than most values.
LONGEST_ID = 200  # characters


def is_safe_id(entry_id: str) -> bool:
    """Return whether an id may stand in a placeholder, a file name and a URL.

    Entries with an unsafe id are not extracted. Placeholders with ids longer than `LONGEST_ID`,
    which earlier versions wrote, are still read.
    """
    if len(entry_id) > LONGEST_ID or entry_id in {".", ".."}:
        return False
    return _SAFE_ID.fullmatch(entry_id) is not None


def placeholder(entry_id: str) -> str:
    """Return the text that replaces each extracted value of an entry."""
    return f"{PLACEHOLDER_START}{entry_id}{PLACEHOLDER_END}"


def is_placeholder(text: str) -> bool:
    """Return whether a text is exactly a placeholder, of any entry."""
    return _PLACEHOLDER.fullmatch(text) is not None


def ends_in_placeholder(text: str) -> str | None:
    """Return the id in the placeholder at the end of a text, or None; text may precede it."""
    if not text.endswith(PLACEHOLDER_END):
        return None
    start = text.rfind(PLACEHOLDER_START)  # no id contains this, so the last occurrence counts
    found = _PLACEHOLDER.fullmatch(text, start) if start >= 0 else None
    return found[1] if found else None


def standing_at(entry: dict[str, Any], path: ValuePath) -> str | None:
    """Return the id in the placeholder at the place of a value; None if there is no placeholder.

    The placeholder ends a text; for a block, it is in the text block that replaced it. Its id is
    the id of the extracted entry, even in copies with other ids. If there is none, another program
    or a user has changed the value since, and bsd leaves it as it is.
    """
    value = value_at(entry, path)
    if isinstance(value, dict) and (
        value.keys() == {"text"} or str(value.get("type")).endswith("text")
    ):
        value = value.get("text")
    return ends_in_placeholder(value) if isinstance(value, str) else None


def mentioned_ids(text: str) -> list[str]:
    """Return the ids of all placeholders in a text."""
    return _PLACEHOLDER.findall(text)


@dataclass(frozen=True, slots=True)
class Marker:
    """The `_extracted` member, which names the stored original of an entry."""

    ref: str  # file name without ending
    hash: str  # `sha256:…` of the stored file
    size: int  # bytes of the stored file
    keys: tuple[str, ...]  # paths of the extracted values
    at: str  # ISO 8601, Z

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Marker | None:
        """Read an entry's marker; None if it has none, or if bsd did not write `_extracted`."""
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
        """Return the JSON of the member's value, as it stands in the line."""
        member = {
            "ref": self.ref,
            "hash": self.hash,
            "size": self.size,
            "keys": self.keys,
            "at": self.at,
        }
        try:
            return orjson.dumps(member)
        except TypeError:  # lone surrogates in names from another program
            return json.dumps(member, separators=(",", ":")).encode()

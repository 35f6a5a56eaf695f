"""What an entry says about the model that wrote it: its name, and the tokens it used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bsd.agents.base import Entry
from bsd.agents.reading import message_of, text_of
from bsd.foundation.immutable import immutable

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
        or text_of(_payload(entry).get("model"))
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


def _payload(entry: Entry) -> Entry:
    payload = entry.get("payload")
    return payload if isinstance(payload, dict) else {}


def _last_usage(entry: Entry) -> Any:
    if "payload" not in entry:  # as in most dialects
        return None
    info = _payload(entry).get("info")
    return info.get("last_token_usage") if isinstance(info, dict) else None


def _first_count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        count = usage.get(name)
        if type(count) is int and 0 < count < 1 << 53:  # and no bool
            return count
    return 0

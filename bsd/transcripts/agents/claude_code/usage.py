"""The figures of the prompt cache in the usage that Claude Code records with each answer."""

from __future__ import annotations

import re
from functools import lru_cache

from bsd.transcripts.agents.entry import Entry, message_of, provider_of, text_of, usage_of
from bsd.transcripts.agents.format import CacheUse

# Names of members of usage that count tokens written to the cache, by lifetime.
_LIFE = re.compile(r"ephemeral_([0-9]{1,4})([mh])_input_tokens")
_SECONDS = {"m": 60.0, "h": 3600.0}


def cache_use(entry: Entry) -> CacheUse | None:
    """Return the request of an answer, with its use of the cache; None without token counts.

    Newer versions state the lifetime of each part of the written tokens.
    """
    message, request = message_of(entry), usage_of(entry)
    usage = message.get("usage")
    if request is None or not isinstance(usage, dict):
        return None
    written = usage.get("cache_creation")
    lives = [
        _life_seconds(name)
        for name, tokens in (written.items() if isinstance(written, dict) else ())
        if tokens
    ]
    return CacheUse(
        text_of(message.get("model")),
        in_use=bool(request.read or request.written),
        life_seconds=max(filter(None, lives), default=None),
        provider=provider_of(entry),
        usage=request,
    )


@lru_cache(maxsize=64)
def _life_seconds(name: str) -> float | None:
    """Return the lifetime in seconds that a member of usage names, or None."""
    found = _LIFE.fullmatch(name)
    return int(found[1]) * _SECONDS[found[2]] if found else None

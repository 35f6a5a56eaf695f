"""Tells until when the provider's prompt cache of a session is warm (SPEC §3a, rule 2).

If an old value in context changes, the provider must read everything after it anew. While the cache
is warm, that costs more than the tokens of the value. The lifetime of a cache, counted from its
last use, comes from the usage recorded in the session, or from the table below by model name.
"""

from __future__ import annotations

import re

from bsd.store.state import CacheSeen
from bsd.transcripts.agents.format import EntryInfo

_MINUTE, _HOUR = 60.0, 3600.0


# Patterns of model names, and the lifetime of the provider's cache. The first matching row counts.
# If a provider has several lifetimes and the usage does not say which, the longest is used: waiting
# too long never costs more than changing nothing. As of November 2026; sources are the providers'
# pages on prompt caching and prices.
_LIVES = (
    # platform.claude.com: 5 minutes, or an hour if the program asks for it (subscriptions do).
    (r"claude", _HOUR),
    # developers.openai.com: GPT-6.2 Sol can be asked for 12 hours; GPT-5.6 and later have
    # 30 minutes.
    (r"gpt-6[.-]2-sol", 12 * _HOUR),
    (r"gpt-(5[.-]([6-9]|[1-9]\d)|([6-9]|[1-9]\d))(?!\d)", 30 * _MINUTE),
    # Same source, for earlier models: 24 hours, unless an organization has storage off.
    (r"gpt-|chatgpt|codex|(^|/)o[1-9]", 24 * _HOUR),
)
# Gemini and DeepSeek ("hours") publish no exact lifetime, and other models are unknown: use a day,
# the longest lifetime that any provider publishes.
_UNKNOWN_SECONDS = 24 * _HOUR
_LONGEST_MODEL = 128  # characters of a model's name that are searched


def life_seconds(model: str) -> float:
    """Return how long a model's cache lives after its last use, if usage does not tell it."""
    name = model[:_LONGEST_MODEL]
    found = (life for models, life in _LIVES if re.search(models, name, re.IGNORECASE))
    return next(found, _UNKNOWN_SECONDS)


class PromptCache:
    """Follows a session entry by entry and keeps the cache data of its newest answer."""

    def __init__(self, seen: CacheSeen | None = None) -> None:
        seen = seen or CacheSeen()
        self._in_use, self._model = seen.in_use, seen.model
        self._used_ms, self._life_seconds = seen.used_ms, seen.life_seconds

    @property
    def seen(self) -> CacheSeen:
        """The cache data seen so far, for a checkpoint."""
        return CacheSeen(self._in_use, self._used_ms, self._model, self._life_seconds)

    def follow(self, info: EntryInfo) -> None:
        """Add the next entry."""
        use = info.cache
        if use is not None:
            if use.model is not None and use.model != self._model:
                self._model, self._life_seconds = use.model, None  # another model's cache
            if use.life_seconds is not None:
                self._life_seconds = use.life_seconds
            self._in_use = self._in_use or use.in_use
        is_answer = info.is_assistant or (use is not None and use.in_use)
        if is_answer and info.time_ms is not None:
            self._used_ms = info.time_ms

    def warm_until(self, now: float, written: float) -> float | None:
        """Return when the cache gets cold; None if it is cold now or no cache is in use.

        A time further ahead than the cache lives comes from a wrong clock. It is ignored, so that
        no session waits for it.

        Args:
            now: epoch seconds, like the result.
            written: when the session's file was last written, in epoch seconds.
        """
        if not self._in_use:
            return None
        life = self._life_seconds
        life = life_seconds(self._model) if life is None else life
        times = [written] if self._used_ms is None else [self._used_ms / 1000, written]
        used = next((time for time in times if time <= now + life), None)
        return used + life if used is not None and used + life > now else None

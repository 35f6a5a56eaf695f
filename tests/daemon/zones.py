"""A machine in another time zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest


@contextmanager
def zone(name: str) -> Iterator[None]:
    """Let local time be that of `name`; this process only."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", name)
            time.tzset()
            yield
    finally:
        time.tzset()


def at(text: str) -> float:
    """Epoch seconds of an ISO moment with offset, or in UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def local(moment: float) -> str:
    """The time on a wall clock, with the offset from UTC."""
    return datetime.fromtimestamp(moment, UTC).astimezone().isoformat(timespec="minutes")

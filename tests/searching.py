"""The index of words, brought up to date as it is by whoever searches."""

from __future__ import annotations

from bsd.care.search import search
from bsd.foundation.layout import Layout


def read_all(layout: Layout) -> None:
    """Read what is new in all sessions, statistics included."""
    search(layout, "anything")

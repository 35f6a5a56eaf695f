"""A cache for outlines of sessions that are listed page by page, and for their meters.

A meter is the state of `outline_session` for one session. Both caches are limited in bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from bsd.core.layout import SessionName
from bsd.planning.session_outline import SessionMeter
from bsd.planning.view import Outline, outline_of
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import Transcript

MOST_BYTES = 16 << 20


class Outlines:
    """A cache that drops the least recently used outlines. Thread-safe.

    `most_bytes` limits the outlines and the meters, each on its own.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[SessionName, Outline] = OrderedDict()
        self._meters: OrderedDict[SessionName, SessionMeter] = OrderedDict()
        self._drawing: dict[SessionName, _Drawing] = {}

    @property
    def memory(self) -> int:
        """Return approximately how many bytes the outlines and meters take."""
        with self._lock:
            outlines = sum(outline.memory for outline in self._kept.values())
            return outlines + sum(meter.memory for meter in self._meters.values())

    def of(self, name: SessionName, source: Transcript, fmt: TranscriptFormat) -> Outline:
        """Return the outline of an open session; reads the lines that the cached outline lacks."""
        with self._alone_with(name):
            known = self._known(name)
            if known is not None and known.is_of(source):
                return known
            begun = known if known is not None and known.is_begun_of(source) else None
            outline = outline_of(source, fmt, begun)
            self._keep(name, outline)
            return outline

    def has(self, name: SessionName, source: Transcript) -> bool:
        """Return True if the cache has an outline of the open session, or of its beginning."""
        known = self._known(name)
        return known is not None and (known.is_of(source) or known.is_begun_of(source))

    @contextmanager
    def meter_of(
        self, name: SessionName, source: Transcript, fmt: TranscriptFormat
    ) -> Iterator[SessionMeter]:
        """Lend the meter of an open session; the meter may not have read all of it yet.

        If the block raises an exception, the meter is dropped.
        """
        with self._alone_with(name):
            with self._lock:
                meter = self._meters.pop(name, None)
            if meter is None or not meter.knows(source):
                meter = SessionMeter(fmt)
            yield meter
            with self._lock:
                self._meters[name] = meter
                total = sum(each.memory for each in self._meters.values())
                while total > self._most_bytes:
                    _, gone = self._meters.popitem(last=False)
                    total -= gone.memory

    @contextmanager
    def _alone_with(self, name: SessionName) -> Iterator[None]:
        """Allow only one thread at a time to read a session."""
        with self._lock:
            drawing = self._drawing.setdefault(name, _Drawing())
            drawing.wanted_by += 1
        try:
            with drawing.lock:
                yield
        finally:
            with self._lock:
                drawing.wanted_by -= 1
                if not drawing.wanted_by:
                    del self._drawing[name]

    def _known(self, name: SessionName) -> Outline | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def _keep(self, name: SessionName, outline: Outline) -> None:
        with self._lock:
            self._kept[name] = outline
            self._kept.move_to_end(name)
            total = sum(each.memory for each in self._kept.values())
            while total > self._most_bytes:
                _, gone = self._kept.popitem(last=False)
                total -= gone.memory


class _Drawing:
    """The lock of a session that is being read, and the number of threads that need it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted_by = 0

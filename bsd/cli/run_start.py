"""The lines with which `bsd run` begins on a terminal; the last one is the page's address."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from bsd import __version__
from bsd.cli.output import counted, say_wrapped
from bsd.cli.retention_forecast import spell_moment
from bsd.core.formatting import iso_utc
from bsd.core.settings import HttpAddress
from bsd.daemon.service import RETENTION, Daemon

_INDENT = 12  # columns before the text of a line
_USUAL_ADDRESS = "127.0.0.1:8000"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here, only named


def tell_start(daemon: Daemon, addresses: Sequence[HttpAddress]) -> None:
    """Say on a terminal what the daemon serves, what it does now, and where its page is."""
    if sys.stdout.isatty():
        for line in start_lines(daemon, addresses, time.time()):
            say_wrapped(line, _INDENT)
        sys.stdout.flush()


def start_lines(daemon: Daemon, addresses: Sequence[HttpAddress], now: float) -> Iterator[str]:
    """Yield the five lines; `addresses` are those on TCP, `now` is epoch seconds."""
    state = daemon.state
    yield f"bsd {__version__} runs on {state.layout.root}; Ctrl-C ends it"
    sources = ", ".join(f"{each.name} ({each.path})" for each in state.layout.sources)
    of = f" in the root and in {sources}" if sources else ""
    yield f"  sessions  {len(state.scan):,}{of}"
    yield f"  now       {_work(daemon, now)}"
    yield f"  log       {state.layout.log_file}"
    if addresses:
        first = addresses[0]
        address = HttpAddress(_ANYWHERE.get(first.host, first.host), first.port)
        yield f"  page      http://{address}/"
    else:
        yield f"  page      `bsd run --http {_USUAL_ADDRESS}` serves it"


def _work(daemon: Daemon, now: float) -> str:
    """Say what the daemon does now, and what comes next."""
    state = daemon.state
    if state.settings.readonly:
        return "it only looks: read-only"
    config = state.config.current
    if not config.enabled:
        text = "extraction is switched off (`bsd config set enabled true`)"
    else:
        counts = state.queue.counts()
        waiting = counts.ready + counts.working + counts.waiting + state.scan.left
        looks = f"{counted(waiting, 'session')} to look into" if waiting else "all is looked into"
        text = f"{looks}; what becomes old in idle sessions leaves them"
    next_run = daemon.scheduler.next_run(RETENTION)
    if next_run is not None and next_run > now:
        text += f"; next retention {spell_moment(iso_utc(next_run), now)}"
    return text

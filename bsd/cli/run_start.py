"""The lines that `bsd run` prints on a terminal at its start; the last is the page's address."""

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
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound here, only printed


def tell_start(daemon: Daemon, addresses: Sequence[HttpAddress]) -> None:
    """Print on a terminal where the daemon works, its next work, and the address of its page."""
    if sys.stdout.isatty():
        for line in start_lines(daemon, addresses, time.time()):
            say_wrapped(line, _INDENT)
        sys.stdout.flush()


def start_lines(daemon: Daemon, addresses: Sequence[HttpAddress], now: float) -> Iterator[str]:
    """Yield the five lines.

    Args:
        addresses: the addresses on TCP.
        now: epoch seconds.
    """
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
    """Describe the current work of the daemon, and its next job."""
    state = daemon.state
    if state.settings.readonly:
        return "read-only: no session is changed"
    config = state.config.current
    if not config.enabled:
        text = "extraction is switched off (`bsd config set enabled true`)"
    else:
        counts = state.queue.counts()
        waiting = counts.ready + counts.working + counts.waiting + state.scan.left
        looks = f"{counted(waiting, 'session')} to check" if waiting else "all sessions are checked"
        text = f"{looks}; old values of idle sessions are extracted"
    next_run = daemon.scheduler.next_run(RETENTION)
    if next_run is not None and next_run > now:
        text += f"; next retention {spell_moment(iso_utc(next_run), now)}"
    return text

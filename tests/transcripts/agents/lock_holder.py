"""A process that holds a session's lock: `python -m tests.transcripts.agents.lock_holder WHAT …`.

  hold FILE           takes the lock, reports that, and holds it until its standard input ends
  count FILE N SECS   adds 1 to the number in N under the lock, repeatedly for SECS seconds
  judge FILE          reports the holder of the lock
  take FILE           takes the lock and releases it, or prints the error

Its reports and its log are lines of JSON. `--host openclaw` may be at any place.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bsd.core.errors import BsdError
from bsd.transcripts.agents.openclaw.lock import SessionLock, inspect_lock
from tests.logs import tell_logs


def main() -> None:
    tell_logs(lambda line: say(**line))
    arguments = [word for word in sys.argv[1:] if word not in {"--host", "openclaw"}]
    what, session_file = arguments[0], Path(arguments[1])
    if what == "hold":
        hold(session_file)
    elif what == "count":
        count(session_file, Path(arguments[2]), float(arguments[3]))
    elif what == "judge":
        say(event=type(inspect_lock(session_file)).__name__)
    elif what == "take":
        take(session_file)


def hold(session_file: Path) -> None:
    with SessionLock(session_file):
        say(event="acquired")
        sys.stdin.read()
    say(event="released")


def count(session_file: Path, counter: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        with SessionLock(session_file):
            before = int(counter.read_text())
            time.sleep(0.001)  # a chance for a process that should not be here
            counter.write_text(str(before + 1))
        rounds += 1
        time.sleep(0.002)  # lets others in: this lock has no queue
    say(event="counted", rounds=rounds)


def take(session_file: Path) -> None:
    try:
        with SessionLock(session_file, timeout=0):
            say(event="acquired")
    except BsdError as error:
        say(event=type(error).__name__, message=error.message, hint=error.hint)


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

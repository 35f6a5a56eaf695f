"""`bsd status` as people and prompts call it, without the library that reads command lines.

That takes longer to load than the daemon to answer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from bsd.doors.cli.client import find_client
from bsd.doors.cli.commands import PIPE_CLOSED
from bsd.doors.cli.output import print_json, say
from bsd.doors.cli.status_text import status_lines
from bsd.doors.command_line import split_command
from bsd.foundation.errors import BsdError


def quick_status(argv: list[str]) -> int | None:
    """Answer `[--root DIR] [--config FILE] [--json] status [--json]`; returns the exit code.

    None: the call wants something else, or it went wrong; then nothing was printed.
    """
    before, name, after = split_command(argv)
    if name != "status" or any(option != "--json" for option in after):
        return None
    named: dict[str, str | None] = {"--root": None, "--config": None}
    given = [option for option in before if option != "--json"]
    for option, value in zip(given[::2], given[1::2], strict=False):
        if option not in named or value.startswith("-"):
            return None
        named[option] = value
    if len(given) % 2:
        return None
    try:
        document = find_client(named["--root"], named["--config"]).get("/api/status")
    except BsdError:  # the full command line does the same once more, and tells it with all care
        return None
    if hasattr(sys.stdout, "reconfigure"):  # a name may hold what the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print_status(document, as_json="--json" in argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python's flush at exit fails as well
        return PIPE_CLOSED
    return 0


def print_status(document: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the daemon's status for people or for programs."""
    if as_json:
        print_json(document)
        return
    for line in status_lines(document, time.time()):
        say(line)

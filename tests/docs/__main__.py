"""Runs the commands of pages, and prints their output: `python -m tests.docs PAGE…`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.pages import console_commands
from tests.docs.terminal import differences, terminal


def main() -> int:
    """Run each page; returns 1 if a command and its page differ."""
    wrong = 0
    for name in sys.argv[1:]:
        commands = console_commands(Path(name).read_text(encoding="utf-8"))
        with (
            tempfile.TemporaryDirectory(prefix="bsd-", dir="/tmp") as place,
            terminal(Path(place).resolve(), commands) as run,
        ):
            for command in commands:
                code, printed = run(command.text)
                sys.stdout.write(f"$ {command.text}\n{printed}")
                for told in differences(command, code, printed):
                    sys.stdout.write(f"!!! {name}:{command.line}: {told}\n")
                    wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

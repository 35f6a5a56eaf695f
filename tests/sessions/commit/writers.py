"""Node processes that append to a session, and the proof that every line arrived."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import IO, Self, cast

from tests.needs import require_node


class NodeWriter:
    """A process; `begin` and `end` bound its writing to a session."""

    def __init__(self, name: str, mode: str) -> None:
        self.name = name
        self.mode = mode
        self._written = 0
        self._process = subprocess.Popen(
            [require_node(), str(Path(__file__).with_name("writer.mjs")), name, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def begin(self, session: Path) -> None:
        self._say(f"go {session}")

    def end(self) -> list[str]:
        """Stop; return the ids of the lines written since `begin`, in order."""
        self._say("stop")
        before = self._written
        self._written = int(cast(IO[bytes], self._process.stdout).readline())
        return [f"{self.name}-{number}" for number in range(before, self._written)]

    def _say(self, text: str) -> None:
        stdin = cast(IO[bytes], self._process.stdin)
        stdin.write(text.encode() + b"\n")
        stdin.flush()


def missing_doubled_disordered(session: Path, written: list[list[str]]) -> list[str]:
    """Return the lines of these writers that a session misses, repeats or holds out of order."""
    content = session.read_bytes()
    problems = [] if content.endswith(b"\n") else [f"torn at the end: {content[-80:]!r}"]
    ids = []
    for number, raw in enumerate(content.split(b"\n")[:-1]):
        try:
            ids.append(json.loads(raw)["id"])
        except ValueError:
            problems.append(f"line {number} is torn: {raw[:80]!r}…{raw[-80:]!r}")
    times = Counter(ids)
    for lines in written:
        problems += [f"{one}: {times[one]} times" for one in lines if times[one] != 1]
        mine = set(lines)
        if [one for one in ids if one in mine] != [one for one in lines if times[one]]:
            problems.append(f"the lines of {lines[0].partition('-')[0]} are out of order")
    return problems

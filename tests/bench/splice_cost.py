"""The cost of finding and replacing values, compared with parsing the same line.

`python -m tests.bench.splice_cost MEGABYTES` prints, as JSON, seconds for `orjson.loads` of
every line that has a long value, and for replacing that value in the raw bytes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import orjson

from bsd.sample import session_lines
from bsd.transcripts.spans import ValuePath
from bsd.transcripts.splice import edit

_LONG = 500
_ROUNDS = 3


def _long_texts(entry: dict[str, object]) -> dict[ValuePath, bytes]:
    """Return the long texts of a message's blocks, as the paths of the values to replace."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return {
        ("message", "content", number, key): b'"[[extracted-00000000]]"'
        for number, block in enumerate(content if isinstance(content, list) else [])
        for key in ("text", "thinking")
        if len(block.get(key, "")) >= _LONG
    }


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main(size: int) -> None:
    edits = [
        (line, paths)
        for line in session_lines(size=size)
        if (paths := _long_texts(orjson.loads(line)))
    ]
    loads = _best(lambda: [orjson.loads(line) for line, _ in edits])
    splice = _best(lambda: [edit(line, replace=paths) for line, paths in edits])
    size = sum(len(line) for line, _ in edits)
    print(json.dumps({"bytes": size, "loads": loads, "splice": splice}))


if __name__ == "__main__":
    main(int(sys.argv[1]) << 20)

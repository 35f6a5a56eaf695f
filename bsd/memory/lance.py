"""The one program that loads LanceDB: `python -m bsd.memory.lance DIRECTORY count|delete|list`.

LanceDB brings threads that never end and hundreds of megabytes; neither belongs into a daemon that
needs it once an hour. `delete` reads ids from stdin, a JSON list. `list` writes a line for each
vector, `[id, created_at or null, hash of its text or null]`; the others one number: how many there
are, how many were deleted. The problem, if there is one, is the last line of stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bsd.memory.database import normalized_hash

TABLE = "memories"  # as the plugin calls it
_AT_ONCE = 500  # ids in one statement
_ROWS = 1000


def main(directory: str, verb: str) -> None:
    import lancedb  # noqa: PLC0415 - `table_directory` must not cost seconds

    table = lancedb.connect(directory).open_table(TABLE)
    match verb:
        case "count":
            _answer(table.count_rows())
        case "delete":
            _answer(_delete(table, json.load(sys.stdin)))
        case _:
            for row in _rows(table):
                _answer(row)


def table_directory(directory: Path) -> Path:
    """Where LanceDB keeps the table."""
    return directory / f"{TABLE}.lance"


def _delete(table: Any, ids: list[str]) -> int:
    before = int(table.count_rows())
    for start in range(0, len(ids), _AT_ONCE):
        listed = ", ".join("'" + one.replace("'", "''") + "'" for one in ids[start:][:_AT_ONCE])
        table.delete(f"id IN ({listed})")
    return max(0, before - int(table.count_rows()))


def _rows(table: Any) -> Iterator[list[Any]]:
    columns = [name for name in ("id", "text", "createdAt") if name in table.schema.names]
    for batch in table.search(None).select(columns).to_batches(batch_size=_ROWS):
        for row in batch.to_pylist():
            yield [row["id"], row.get("createdAt"), normalized_hash(row.get("text"))]


def _answer(document: Any) -> None:
    # Not through print: stdout belongs to whoever asked.
    sys.stdout.buffer.write(json.dumps(document).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])

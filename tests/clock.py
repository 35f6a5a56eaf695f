"""A clock that was set just now, as the record of a root tells it."""

from __future__ import annotations

import time
from pathlib import Path

import orjson

from bsd.foundation.ages import ClockRecord, boot_id, steady
from bsd.foundation.layout import Layout


def put_forward(root: Path, hours: float, *, ago: float = 40.0) -> None:
    """Let bsd find that the clock moved by so much more than the `ago` seconds that passed."""
    record = ClockRecord(boot_id(), time.time() - ago - hours * 3600, steady() - ago)
    file = Layout(root).clock_file
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(record.as_json()))

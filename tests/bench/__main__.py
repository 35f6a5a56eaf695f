"""`make bench`: compare bsd with its peers, as ratios within one run on one machine (DESIGN §5).

`BENCH_MB` is the size of a corpus (default 256). `BENCH_HUGE_MB` is the size of the session for
the memory row (default 1024). `BENCH_ONLY` is a word that selects the rows whose names contain it.
daemon_rows.py describes the settings of the daemon's rows.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.bench import rows
from tests.bench.measure import Failed
from tests.bench.row import HEADINGS

_CACHE = Path(".bench").resolve()
_EMPTIED = _CACHE / "emptied"  # its time is that of the latest deletion
_SLOW_SECONDS = 360  # ext4 does not use inodes again that were freed within five minutes


def main() -> int:
    _CACHE.mkdir(exist_ok=True)
    wanted = os.environ.get("BENCH_ONLY", "")
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()};")
    print("every program is bound to one of them.\n")
    with suppress(FileNotFoundError):
        ago = time.time() - _EMPTIED.stat().st_mtime
        if ago < _SLOW_SECONDS:
            print(
                f"The last run deleted its files {ago:.0f} s ago: until {_SLOW_SECONDS} s have "
                "passed the disk may make new ones at half the speed.\n"
            )
    print(HEADINGS, flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=_CACHE))
    try:
        bad = sum(_measured(name, scratch) for name in rows.ALL if wanted in name)
    finally:
        # Delete only at the end: without a journal, ext4 creates files many times as slowly for
        # minutes after a deletion, so rows would measure the deletions of earlier rows.
        shutil.rmtree(scratch)
        _EMPTIED.touch()
    print(f"\n{bad} of the rows miss their target." if bad else "\nAll targets are met.")
    return min(bad, 1)


def _measured(name: str, scratch: Path) -> int:
    """Measure the rows of this name in a new directory; return how many miss their target."""
    place = scratch / name
    place.mkdir()
    bad = 0
    try:
        for row in rows.ALL[name](place, _CACHE):
            bad += not row.met
            print(row, flush=True)
    except Failed as error:
        bad += 1
        print(f"{name}: {error}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())

"""The rows of the memory: bsd beside the plugin's own SQL on the same facts.

`BENCH_FACTS` is the number of facts (default 1,000,000).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.bench.measure import run
from tests.bench.row import Row, Rows

FACTS = int(os.environ.get("BENCH_FACTS", "1000000"))
_LEAST = 10.0  # times as fast as the plugin's triggers make it
# Times the cost of the bare statements: bsd's indexes are more pages to write, and bsd looks up
# each fading fact and gives it a base confidence; the bare statements receive the rows.
_MOST = {"hourly run": 2.0, "soft decay of one in ten": 2.5}

_REPORTED = ("store", "recall", "recall and refresh", "dry run")
_FAST = ("hourly run, nothing to delete yet", "hourly run, one in ten linked")
_REMARKS = {"dry run": "reported only: theirs counts the expired only"}


def memory_of_facts(scratch: Path, _cache: Path) -> Rows:
    """Measure storing, recalling, and the hourly run."""
    answer = run([sys.executable, "-m", "tests.bench.memory_work", str(scratch), str(FACTS)])
    found = json.loads(answer.output)
    for name in (*_REPORTED, *_FAST):
        ours, theirs = found[name]["ours"], found[name]["theirs"]
        must = name in _FAST
        yield Row(
            f"{FACTS:,} facts: {name}{', CPU' if must else ''}",
            _told(ours),
            f"plugin's SQL {_told(theirs)}",
            theirs / ours,
            f"≥ {_LEAST:.0f} × faster" if must else _REMARKS.get(name, "reported only"),
            not must or theirs >= _LEAST * ours,
        )
    for name, most in _MOST.items():
        ours, theirs, bare = (found[name][key] for key in ("ours", "theirs", "bare"))
        yield Row(
            f"{FACTS:,} facts: {name}, CPU",
            _told(ours),
            f"bare {_told(bare)}, plugin's SQL {_told(theirs)}",
            ours / bare,
            f"≤ {most:g} × the bare statements",
            ours <= most * bare,
        )
    yield Row(
        f"{FACTS:,} facts: taking over a database of the plugin",
        _told(found["opening"]["ours"]),
        "",
        0.0,
        "reported only: once, in short changes",
        met=True,
    )


def _told(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"

"""`make growth`: time and memory by the size of a session and by the number of sessions.

`BENCH_GROWTH_MB` are the sizes (default `1 10 100 1000`), `BENCH_GROWTH_SESSIONS` the numbers
(`100 1000 10000 100000`). The command extracts one session, on one core. The daemon scans many
sessions for the first time, indexes their words, and is restarted to measure it idle. The program
writes the results to growth.json beside this file, with the machine and its load, and draws
growth.svg from them. With `--draw` it only draws.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.daemon import Daemon, configure
from tests.bench.daemon_rows import NEVER, fill
from tests.bench.rows import extract, one_session

_MB = 1 << 20
_HERE = Path(__file__).parent
_FOUND, _DRAWN = _HERE / "growth.json", _HERE / "growth.svg"
_SIZES = os.environ.get("BENCH_GROWTH_MB", "1 10 100 1000")
_NUMBERS = os.environ.get("BENCH_GROWTH_SESSIONS", "100 1000 10000 100000")

Point = dict[str, float]


def main() -> None:
    if "--draw" not in sys.argv[1:]:
        found = {
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs,"
            f" Python {platform.python_version()}",
            "day": datetime.now(tz=UTC).date().isoformat(),
            "sizes": [_measured(of_size, int(size)) for size in _SIZES.split()],
            "numbers": [_measured(of_number, int(number)) for number in _NUMBERS.split()],
        }
        _FOUND.write_text(json.dumps(found, indent=2) + "\n")
    _DRAWN.write_text(drawing(json.loads(_FOUND.read_bytes())))


def _measured(measure: Callable[[Path, int], Point], many: int) -> Point:
    cache = Path(".bench").resolve()
    cache.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="growth-", dir=cache))
    try:
        point = measure(scratch, many) | {"load": round(os.getloadavg()[0], 1)}
    finally:
        shutil.rmtree(scratch)
    print(json.dumps(point), flush=True)
    return point


def of_size(root: Path, megabytes: int) -> Point:
    """Measure one session; return seconds, and peak memory in MB."""
    one_session(root, megabytes * _MB)
    cost = extract(root)
    return {
        "mb": megabytes,
        "seconds": round(cost.wall, 3),
        "cpu": round(cost.cpu, 3),
        "peak": cost.rss // _MB,
    }


def of_number(root: Path, number: int) -> Point:
    """Measure many small sessions; return seconds, and MB of the daemon and its processes."""
    fill(root, number)
    configure(root, auto_cron=NEVER, retention_cron=NEVER)
    began = time.perf_counter()
    with Daemon(root) as daemon, daemon.peak() as peak:
        looked = daemon.wait_until_idle()
        seconds = time.perf_counter() - began
        every = daemon.wait_until_indexed()
    with Daemon(root) as daemon:
        daemon.wait_until_idle()
        daemon.wait_until_indexed()
        rest = daemon.rss()
    return {
        "sessions": number,
        "seconds": round(seconds, 3),
        "cpu": round(looked, 3),
        "cpu_with_words": round(every, 3),
        "peak": peak.rss // _MB,
        "rest": rest // _MB,
    }


# --- the picture: two columns, time above memory, both axes logarithmic ---

_WIDTH, _HEIGHT = 420, 250  # of a panel, with the text around it
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 24, 44, 34
_INSET = 24  # so that numbers do not overlap
# The colour of each line, and the place of its numbers.
_LOOKS = (
    ("#1f6feb", 'dy="-7" text-anchor="middle"'),
    ("#bc4c00", 'dy="14" text-anchor="middle"'),
    ("#2da44e", 'dx="-5" dy="-5" text-anchor="end"'),
)
_PANELS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("One session: seconds", "sizes", "mb", {"seconds": "wall", "cpu": "CPU"}),
    (
        "Many small sessions: seconds",
        "numbers",
        "sessions",
        {
            "seconds": "wall, first look",
            "cpu": "CPU, first look",
            "cpu_with_words": "CPU, words too",
        },
    ),
    ("One session: memory, MB", "sizes", "mb", {"peak": "peak"}),
    (
        "Many small sessions: memory, MB",
        "numbers",
        "sessions",
        {"peak": "peak, all processes", "rest": "at rest, daemon"},
    ),
)


def drawing(found: dict[str, Any]) -> str:
    """Return the four panels as SVG."""
    loads = [point["load"] for name in ("sizes", "numbers") for point in found[name]]
    below = f"{found['machine']}, {found['day']}, load {min(loads)} to {max(loads)}"
    size = f'width="{2 * _WIDTH}" height="{2 * _HEIGHT + 24}"'
    style = 'font-family="sans-serif" font-size="11" fill="#24292f"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for number, (title, name, along, lines) in enumerate(_PANELS):
        place = f"translate({number % 2 * _WIDTH} {number // 2 * _HEIGHT})"
        parts.append(f'<g transform="{place}">{_panel(title, found[name], along, lines)}</g>')
    parts.append(f'<text x="{_LEFT}" y="{2 * _HEIGHT + 12}" fill="#57606a">{below}</text></svg>')
    return "\n".join(parts) + "\n"


def _panel(title: str, points: Sequence[Point], along: str, lines: dict[str, str]) -> str:
    along_it = [point[along] for point in points]
    across = _scale(along_it, _LEFT + _INSET, _WIDTH - _RIGHT - _INSET)
    upwards = _scale([point[key] for point in points for key in lines], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text x="{_LEFT}" y="16" font-size="13" font-weight="bold">{title}</text>']
    for value in _decades(point[key] for point in points for key in lines):
        y = f"{upwards(value):.1f}"
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#d0d7de"/>'
            f'<text x="{_LEFT - 6}" y="{y}" dy="4" text-anchor="end">{value:g}</text>'
        )
    unit = " MB" if along == "mb" else ""
    parts += [
        f'<text x="{across(point[along]):.1f}" y="{_HEIGHT - _BOTTOM + 18}"'
        f' text-anchor="middle">{point[along]:,g}{unit}</text>'
        for point in points
    ]
    legend = _LEFT
    for (colour, label), (key, words) in zip(_LOOKS, lines.items(), strict=False):
        spots = [(across(point[along]), upwards(point[key])) for point in points]
        parts.append(f'<text x="{legend}" y="32" fill="{colour}">{words}</text>')
        parts.append(_line(spots, [point[key] for point in points], colour, label))
        legend += 7 * len(words) + 12
    return "\n".join(parts)


def _line(
    spots: Sequence[tuple[float, float]], values: Sequence[float], colour: str, label: str
) -> str:
    told = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    parts = [f'<polyline points="{told}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    parts += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
        f'<text x="{x:.1f}" y="{y:.1f}" {label} font-size="9" fill="{colour}">{value:.3g}</text>'
        for (x, y), value in zip(spots, values, strict=True)
    ]
    return "\n".join(parts)


def _decades(values: Any) -> list[float]:
    """Return powers of ten from below the least value to above the largest."""
    known = [math.log10(max(value, 1e-3)) for value in values]
    return [10.0**each for each in range(math.floor(min(known)), math.ceil(max(known)) + 1)]


def _scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    marks = _decades(values)
    low, high = math.log10(marks[0]), math.log10(marks[-1])
    return lambda value: (
        first + (math.log10(max(value, 1e-3)) - low) / ((high - low) or 1) * (last - first)
    )


if __name__ == "__main__":
    main()

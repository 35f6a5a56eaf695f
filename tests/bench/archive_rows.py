"""The rows of the archive: its size, the speed of packing, and the cost of a restore from it.

`BENCH_ARCHIVE_MB` is the size of the archive for the restores (default 100). The lines are pieces
of real transcripts if these are available, otherwise of generated transcripts.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bsd.core.layout import Layout, SessionName
from bsd.sample import session_lines
from bsd.store.archive import SessionArchive
from bsd.store.originals import SessionStore, digest
from tests.actions.performed import Caller
from tests.bench.measure import run, settle
from tests.bench.row import Row, Rows
from tests.openclaw_tree import SHARED_DATA
from tests.session_files import Clock, make_caller

_MB = 1 << 20
_ARCHIVE = int(os.environ.get("BENCH_ARCHIVE_MB", "100")) * _MB
_FILES = 5000
_LINE = 50_000
_RESTORES = 200
_NAME = SessionName("main", "long")


def _text() -> bytes:
    """Return lines as bsd extracts them from sessions."""
    real = sorted(SHARED_DATA.glob("*.jsonl"))
    lines = (line for path in real for line in path.read_bytes().splitlines(keepends=True))
    if found := b"".join(line for line in lines if len(line) > 500):
        return found
    return b"".join(session_lines(size=16 * _MB, seed=1))


def _lines(number: int) -> Iterator[bytes]:
    """Yield `number` different lines of 50 KB; neighbouring lines have little in common."""
    text, chance = _text(), random.Random(1)
    for each in range(number):
        start = chance.randrange(len(text) - _LINE)
        value = text[start : start + _LINE - 60].decode("utf-8", "replace")
        yield json.dumps({"id": f"{each:08x}", "text": value}).encode() + b"\n"


def _store(directory: Path, number: int) -> list[tuple[str, str]]:
    """Fill a store; return refs and hashes."""
    directory.mkdir(parents=True)
    found = []
    for each, line in enumerate(_lines(number)):
        ref = f"{each:04d}_tool_result"
        (directory / f"{ref}.json").write_bytes(line)
        found.append((ref, digest(line)))
    return found


def pack(directory: str, archive: str) -> None:
    """Read the files, then pack them, in a child; print bytes, seconds of both and of CPU."""
    files = sorted(Path(directory).iterdir())
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    began = time.perf_counter()
    content = sum(len(file.read_bytes()) for file in files)
    read, used = time.perf_counter(), time.process_time()
    wanted = [(file, {"file": file.name, "entry_id": file.name[:4]}) for file in files]
    packed = sum(one.packed for one in SessionArchive(Path(archive)).take(wanted, time.time()))
    took = time.perf_counter() - read, time.process_time() - used
    print(json.dumps([content, packed, read - began, *took]))


def _packing(scratch: Path) -> Rows:
    _store(scratch / "store", _FILES)
    settle()
    where = [str(scratch / "store"), str(scratch / "archive")]
    cost = run([sys.executable, "-m", "tests.bench.archive_rows", *where])
    content, packed, reading, packing, used = json.loads(cost.output)
    speed = content / used / _MB
    yield Row(
        f"packing {content // _MB} MB in files of {_LINE // 1000} KB, CPU",
        f"{speed:.0f} MB/s",
        f"wall {content / packing / _MB:.0f}, reading {content / reading / _MB:.0f}",
        packing / used,
        "≥ 100 MB/s",
        speed >= 100,
    )
    yield Row(
        "peak memory of that",
        f"{cost.rss // _MB} MB",
        f"a pack of {packed // _MB} MB",
        cost.rss / packed,
        "< 150 MB",
        cost.rss < 150 * _MB,
    )


def _restoring(scratch: Path) -> Rows:
    layout = Layout(scratch / "root")
    archive = SessionArchive(layout.archive_dir(_NAME))
    lines = _store(layout.store_dir(_NAME), _FILES)
    kept = 0
    while kept < _ARCHIVE:
        files = sorted(layout.store_dir(_NAME).iterdir())
        wanted = [(file, {"file": file.name, "entry_id": file.name[:4]}) for file in files]
        taken = list(archive.take(wanted, time.time()))
        kept = sum(path.stat().st_size for path in archive.packs())
        if kept < _ARCHIVE:
            for number, file in enumerate(files):  # different lines under the same names
                line = b'{"round":%d,%b' % (kept + number, file.read_bytes()[1:])
                file.write_bytes(line[:13] + line[13:][::-1][1:] + b"\n")
            lines = [(file.stem, digest(file.read_bytes())) for file in files]
        assert taken
    chosen = random.Random(2).sample(lines, _RESTORES)
    near = _median_load(layout, chosen)
    shutil.rmtree(layout.store_dir(_NAME))
    far = _median_load(layout, chosen)
    yield Row(
        f"one entry from an archive of {kept // _MB} MB in {len(archive.packs())} packs",
        f"{far * 1000:.2f} ms",
        f"store {near * 1000:.2f} ms",
        far / near,
        "< 20 ms more",
        far - near < 0.02,
    )


def _median_load(layout: Layout, wanted: list[tuple[str, str]]) -> float:
    times = []
    for ref, hash_ in wanted:
        began = time.perf_counter()
        assert isinstance(SessionStore(layout, _NAME).load(ref, hash_), bytes)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _taking(scratch: Path) -> Rows:
    """Return all values that would leave the available transcripts."""
    layout = Layout(scratch / "root")
    sessions = layout.agents / "main" / "sessions"
    sessions.mkdir(parents=True)
    for path in sorted(SHARED_DATA.glob("openclaw-v3-*.jsonl")):
        shutil.copyfile(path, sessions / path.name)
        os.utime(sessions / path.name, (1e9, 1e9))
    if not list(sessions.iterdir()):
        return
    caller: Caller = make_caller(layout, Clock())
    before = files = 0
    for path in sorted(sessions.glob("*.jsonl")):
        name = SessionName("main", path.stem)
        if not caller.extract(name).values:
            continue
        found = sorted(layout.store_dir(name).glob("[0-9]*.json"))
        before += sum(one.stat().st_blocks * 512 for one in layout.store_dir(name).iterdir())
        records = SessionStore(layout, name).index.records
        wanted = [
            (one, {"file": one.name, "entry_id": records[one.name].entry_id}) for one in found
        ]
        files += sum(
            len(one.files)
            for one in SessionArchive(layout.archive_dir(name)).take(wanted, time.time())
        )
    now = sum(path.stat().st_blocks * 512 for path in layout.archive.rglob("*.zst"))
    yield Row(
        f"what {files} values of recorded sessions take",
        f"{now // 1024} KB",
        f"store {before // 1024} KB",
        now / before,
        "≤ 1/6",
        now <= before / 6,
    )


def archive(scratch: Path, _cache: Path) -> Rows:
    """Measure the archive's size, its creation and its reading."""
    for rows in (_taking, _packing, _restoring):
        (directory := scratch / rows.__name__).mkdir()
        yield from rows(directory)


if __name__ == "__main__":
    pack(*sys.argv[1:])

"""The lower limit of the layout: only the work that extraction cannot do without.

`python -m tests.bench.limit BEFORE AFTER SCRATCH HOW`: BEFORE and AFTER are the same OpenClaw
directory before and after an extraction. The program parses every line of BEFORE with orjson,
writes the store files of AFTER to a separate directory, makes them durable session by session,
renames that directory to its final name, and copies AFTER's session files in the kernel, with
fsync. It prints the seconds. HOW is the method of making files durable: `pooled` calls fsync for
each file in a small pool of threads, as in DESIGN §5; `at-once` calls syncfs once, as bsd does
where syncfs reports errors.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

_libc = ctypes.CDLL(None, use_errno=True)
_THREADS, _SHARE = 8, 32  # files that a thread takes at a time


def _stored_ids(after: Path) -> dict[str, set[str]]:
    """Return the ids of the stored entries for each store directory."""
    return {
        directory.name: {
            orjson.loads(path.read_bytes())["id"]
            for path in directory.glob("*.json")
            if path.name != "index.json"
        }
        for directory in (after / "extracted").iterdir()
    }


def _write(path: str, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, line)
    os.close(descriptor)


def _sync_pooled(directory: Path) -> None:
    paths = [entry.path for entry in os.scandir(directory)]
    shares = [paths[start : start + _SHARE] for start in range(0, len(paths), _SHARE)]
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(_sync_each, shares):
            pass


def _sync_each(paths: Iterable[str]) -> None:
    for path in paths:
        _sync(path)


def _sync_at_once(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    if _libc.syncfs(descriptor):
        raise OSError(ctypes.get_errno(), "syncfs")
    os.close(descriptor)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("xb") as new:
        while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
            pass
        os.fsync(new.fileno())


def _sync(path: Path | str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _kept(session: Path, ids: set[str]) -> Iterator[tuple[str, bytes]]:
    with session.open("rb", buffering=1 << 20) as file:
        for line in file:
            entry = orjson.loads(line)
            if entry.get("id") in ids:
                yield entry["id"], line


_WAYS: dict[str, Callable[[Path], None]] = {"pooled": _sync_pooled, "at-once": _sync_at_once}


def main(before: Path, after: Path, scratch: Path, how: str) -> None:
    ids = _stored_ids(after)
    began = time.perf_counter()
    for number, session in enumerate(sorted(before.glob("agents/*/sessions/*.jsonl"))):
        agent, name = session.parts[-3], session.stem
        apart, store = scratch / "apart", scratch / str(number)
        apart.mkdir()
        for identity, line in _kept(session, ids.get(f"{agent}_{name}", set())):
            _write(f"{apart}/{identity}.json", line)
        _WAYS[how](apart)
        _sync(apart)
        apart.rename(store)
        _copy(after / session.relative_to(before), scratch / f"{number}.jsonl")
        _sync(scratch)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])

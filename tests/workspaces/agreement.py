"""Random trees, pruned in a dry run and then for good: `python -m … DIRECTORY SEED COUNT`.

Run as an ordinary user, whose calls the system can refuse. Prints the disagreements.
"""

from __future__ import annotations

import json
import os
import random
import stat
import sys
from collections import defaultdict
from pathlib import Path

from bsd.core.answers import as_json
from bsd.workspaces import prune_sessions
from tests.workspaces.spaces import HOUR, NOW, clock, make, note

_NAMES = [b"a", b"b", b"caf\xc3\xa9", b"latin-\xe9", b" ", b"new\nline", b"-rf", b"x" * 255]


def main(top: Path, seed: int, count: int) -> dict[str, object]:
    chance = random.Random(seed)
    problems: list[str] = []
    seen: dict[str, int] = defaultdict(int)
    for number in range(count):
        root = top / f"tree{number}"
        build(root, top, chance)
        problems += [f"tree {number} of seed {seed}: {one}" for one in check(root, top, seen)]
    return {"problems": problems, "seen": seen}


def build(root: Path, top: Path, chance: random.Random) -> None:
    """Some workspaces of any age, with every kind of file."""
    outside = top / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "precious").write_bytes(b"p" * 9000)
    files = [outside / "precious"]
    for number in range(chance.randint(1, 5)):
        hours = chance.choice([1, 30, 50])
        path = make(root, f"s{number}", hours=hours, files=0)
        fill(path, chance, files, depth=0)
    if chance.random() < 0.3:
        note(root / "broken", chance.choice([b"", b"[]", b"\xff"]))
    if chance.random() < 0.3:
        (root / "link").symlink_to(outside)
    for path in sorted(root.glob("s*/**/"), key=lambda one: -len(one.parts)):
        if path.name.startswith("s") and path.parent == root:
            mode = chance.choice([0o700, 0o700, 0o700, 0o500, 0o000])
        else:
            mode = chance.choice([0o700, 0o700, 0o755, 0o555, 0o500, 0o300, 0o000])
        if chance.random() < 0.15:
            path.chmod(mode)


def fill(path: Path, chance: random.Random, files: list[Path], depth: int) -> None:
    for raw in chance.sample(_NAMES, chance.randint(0, 5)):
        child = path / os.fsdecode(raw)
        match chance.choice(["file", "file", "link", "symlink", "sparse", "pipe", "dir", "dir"]):
            case "file":
                child.write_bytes(b"x" * chance.choice([0, 1, 5000, 100_000]))
                files.append(child)
            case "link":
                os.link(chance.choice(files), child)
            case "symlink":
                child.symlink_to(chance.choice([*files, path, Path("/"), Path("nowhere")]))
            case "sparse":
                child.touch()
                os.truncate(child, 1 << 33)
            case "pipe":
                os.mkfifo(child)
            case _:
                child.mkdir()
                if depth < 4:
                    fill(child, chance, files, depth + 1)


def check(root: Path, top: Path, seen: dict[str, int]) -> list[str]:
    before, there = listing(root), set(os.listdir(root)) - {".bsd"}
    told = prune_sessions(24, root, True, clock=clock)
    problems = [] if listing(root) == before else ["the dry run changed something"]
    expected = freed(root, told.deleted_sessions)
    stale = {name for name in there if _updated(root / name) < NOW - 24 * HOUR}
    done = prune_sessions(24, root, clock=clock)
    if {**as_json(told), "dry_run": False} != as_json(done):
        problems.append(f"said {as_json(told)}, did {as_json(done)}")
    if done.reclaimed_bytes != expected:
        problems.append(f"{done.reclaimed_bytes} bytes counted, {expected} freed")
    left = set(os.listdir(root)) - {".bsd"}
    if left != there - set(done.deleted_sessions):
        problems.append(f"left: {left}")
    kept = [one for one in before if not _is_in(root, one, done.deleted_sessions)]
    if listing(root) != kept:
        problems.append("what stays is no longer whole")
    if (top / "outside" / "precious").stat().st_size != 9000:
        problems.append("something outside was touched")
    if missed := stale - {*done.deleted_sessions, *done.errors, *done.skipped_sessions}:
        problems.append(f"stale, and not mentioned: {missed}")
    if fresh := set(done.deleted_sessions) - stale:
        problems.append(f"not stale, and gone: {fresh}")
    for outcome in ("deleted_sessions", "errors", "skipped_sessions"):
        seen[outcome] += len(getattr(done, outcome))
    return problems


def _is_in(root: Path, listed: str, sessions: list[str]) -> bool:
    return any(listed.startswith(f"{root / one}/") for one in sessions)


def listing(root: Path) -> list[str]:
    """All visible files in the workspaces, with modes and sizes."""
    found = []
    for directory, names, files in os.walk(root):
        names[:] = sorted(set(names) - {".bsd"})
        if directory != str(root):
            found.append(f"{directory}/:{stat.S_IMODE(os.lstat(directory).st_mode):o}")
        paths = [os.path.join(directory, name) for name in sorted(files)]
        found += [f"{path}:{os.lstat(path).st_size}" if _seen(path) else path for path in paths]
    return found


def _seen(path: str) -> bool:
    try:
        os.lstat(path)
    except PermissionError:
        return False
    return True


def _updated(path: Path) -> float:
    from datetime import datetime

    try:
        document = json.loads((path / ".metadata.json").read_bytes())
        return datetime.fromisoformat(document["updated_at"]).timestamp()
    except (OSError, ValueError, TypeError):
        return NOW


def freed(root: Path, sessions: list[str]) -> int:
    """The bytes that their deletion frees, counted in another way: by inodes with all their
    names.
    """
    total = 0
    links: dict[int, int] = defaultdict(int)
    known: dict[int, os.stat_result] = {}
    for session in sessions:
        for directory, names, files in os.walk(root / session):
            total += os.lstat(directory).st_blocks * 512
            for name in [*files, *names]:
                found = os.lstat(os.path.join(directory, name))
                if not stat.S_ISDIR(found.st_mode):
                    links[found.st_ino] += 1
                    known[found.st_ino] = found
    return total + sum(
        found.st_blocks * 512 for inode, found in known.items() if links[inode] == found.st_nlink
    )


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), sys.stdout)

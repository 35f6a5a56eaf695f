"""Users of workspaces while they are pruned: `python -m … ROLE ROOT SEED END`.

`user` runs programs, touches, and lets workspaces grow old, in threads, until END (monotonic
seconds); `pruner` prunes without pause. Prints its actions and the faults found.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from bsd.core.errors import Busy, NotFound
from bsd.workspaces import create_session_sandbox, execute, prune_sessions, touch_session

COUNT = 200
FAITHFUL = 20  # the first never grow old: they must outlive the test
PAYLOAD = 8  # files in each workspace, from its beginning to its end
OLDER_THAN_HOURS = 1.0
_THREADS = 3
_OLD_SECONDS = 7200.0
# It is in use from its first to its last line: during all of it every file must be there.
_PROGRAM = f"""
echo $$ > by-$$
for _ in 1 2 3; do
    sleep 0.01
    [ -f by-$$ ] && [ -f part{PAYLOAD - 1} ] && [ -d "$HOME" ] || exit 9
done
rm by-$$
"""


def name_of(number: int) -> str:
    return f"space{number:03}"


def furnish(root: Path, number: int) -> None:
    """A workspace, and the files that it must have whenever it exists.

    Its files appear before its metadata count: without them it is not used.
    """
    path = create_session_sandbox(name_of(number), root).path
    for part in range(PAYLOAD):
        (path / f"part{part}").write_bytes(b"x" * 100)


def user(root: Path, seed: int, end: float) -> dict[str, object]:
    did: Counter[str] = Counter()
    problems: list[str] = []
    threads = [
        threading.Thread(target=_live, args=(root, seed * 100 + number, end, did, problems))
        for number in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"did": did, "problems": problems}


def _live(root: Path, seed: int, end: float, did: Counter[str], problems: list[str]) -> None:
    chance = random.Random(seed)
    # On a busy machine its time may be over before it has begun.
    while time.monotonic() < end or not (did["execute"] and did["grow old"]):
        number = chance.randrange(COUNT)
        act = chance.choice(["execute", "execute", "touch", "grow old", "grow old"])
        if act == "grow old" and number < FAITHFUL:
            act = "execute"
        try:
            problem = _do(act, root, name_of(number))
        except (NotFound, Busy) as answer:
            if number < FAITHFUL:
                problems.append(f"{act}: {answer}")
            did["was not there"] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not have happened
            problems.append(f"{act}: {error!r}")
        else:
            did[act] += 1
            if act == "execute" and number < FAITHFUL:
                did[name_of(number)] += 1
            if problem:
                problems.append(f"{act} {name_of(number)}: {problem}")


def _do(act: str, root: Path, session_id: str) -> str | None:
    if act == "execute":
        done = execute(session_id, ["sh", "-c", _PROGRAM], root, isolate=False)
        return done.error and f"{done.error}: {done.stderr}"
    then = time.time() - (_OLD_SECONDS if act == "grow old" else 0.0)
    touch_session(session_id, root, clock=lambda: then)
    return None


def pruner(root: Path, _seed: int, end: float) -> dict[str, object]:
    did: Counter[str] = Counter()
    problems: list[str] = []
    while time.monotonic() < end:
        try:
            done = prune_sessions(OLDER_THAN_HOURS, root)
        except Exception as error:  # noqa: BLE001 - as above
            problems.append(repr(error))
            continue
        did["deleted"] += len(done.deleted_sessions)
        did["in use"] += list(done.skipped_sessions.values()).count("in_use")
        problems += [f"prune: {one}" for one in done.errors.values()]
        if lost := set(done.deleted_sessions) & {name_of(one) for one in range(FAITHFUL)}:
            problems.append(f"deleted although it was never old: {lost}")
    return {"did": did, "problems": problems}


if __name__ == "__main__":
    role = {"user": user, "pruner": pruner}[sys.argv[1]]
    json.dump(role(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])), sys.stdout)

"""Writers and editors without pause: every line arrives once and in order."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict
from bsd.core.layout import Layout, SessionName
from bsd.planning.result import SessionResult
from bsd.sessions.commit import protocol
from bsd.sessions.commit.displaced import Access, Recovered
from bsd.sessions.commit.exchange import Exchange, Step
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.commit.record import Draft
from bsd.sessions.commit.recovery import recover
from bsd.sessions.idle import RetryBudget
from tests.actions import performed
from tests.actions.performed import Caller
from tests.needs import require_linux
from tests.openclaw_tree import set_idle
from tests.sessions.commit.chaos_report import Report
from tests.sessions.commit.crashed import fast_directory, session
from tests.sessions.commit.writers import NodeWriter, missing_doubled_disordered
from tests.waiting import DEADLINE_SECONDS

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


_ROUND_SECONDS = 1.5
SETTINGS = {"keep_recent": 0, "min_value_length": 500, "keep_after_restore_seconds": 0}
# Read before the tests get an environment of their own. `make soak` sets 30.
SECONDS = float(os.environ.get("BSD_CHAOS_SECONDS", "4"))


# --- sessions in which editors and writers work at the same time ---


class Arena:
    """A root that holds one session after another."""

    def __init__(self, root: Path, report: Report) -> None:
        self.layout = Layout(root)
        self.report = report
        root.mkdir(exist_ok=True)
        self.config = ConfigService(self.layout.config_file)
        self.config.update(SETTINGS)

    def caller(self) -> Caller:
        """A caller without a time of quiet: its clock is ahead, so every file looks old enough."""
        budget = RetryBudget(
            wait=0.0, quiet=0.0, clock=lambda: time.time() + 3600, sleep=lambda _: None
        )
        return Caller(
            layout=self.layout,
            config=self.config,
            actor="chaos",
            budget=budget,
            noticed=self.report.noticed,
        )

    def new_session(self, name: SessionName) -> Path:
        path = self.layout.agents / name.agent / "sessions" / f"{name.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(session())
        set_idle(path)
        self.report.sessions += 1
        return path

    def recover(self, later: float = 0.0) -> list[Recovered]:
        """Recover as the daemon does from time to time, with a clock `later` seconds ahead."""
        results = recover(
            InFlight(self.layout),
            replace(Access.to(self.layout), still_idle=lambda *_: None),
            now_ns=lambda: time.time_ns() + int(later * 1e9),
        )
        self.report.recovered(results)
        return results

    def settle(self) -> None:
        """Recover until no file is in flight."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        later = 100.0
        while list(InFlight(self.layout).records()):
            results = self.recover(later)
            later += 100.0
            assert time.monotonic() < deadline, f"never settles: {results}"


@contextmanager
def arena(name: str) -> Iterator[Arena]:
    """An arena in memory; its report is published at the end."""
    top = tempfile.mkdtemp(prefix="bsd-chaos-", dir=fast_directory())
    report = Report(name)
    try:
        yield Arena(Path(top) / "root", report)
    finally:
        shutil.rmtree(top, ignore_errors=True)
        report.publish()


def storm(
    place: Arena,
    writers: list[NodeWriter],
    how_long: float,
    others: Callable[[], list[list[str]]] = list,
    *,
    enough: Callable[[Report], object] = lambda report: report.commits,
) -> list[str]:
    """Extract and restore without pause while the writers append; return the faults.

    Lasts `how_long` seconds, and longer until there was `enough` of its subject.
    """
    problems: list[str] = []
    caller = place.caller()
    end = time.monotonic() + how_long
    latest = end + DEADLINE_SECONDS
    while (now := time.monotonic()) < end or (now < latest and not enough(place.report)):
        name = SessionName("main", f"chat{place.report.sessions}")
        path = place.new_session(name)
        # A writer that holds the session most of the time leaves few gaps: it rests every other
        # round.
        present = [one for one in writers if one.mode != "hold" or place.report.sessions % 2]
        for writer in present:
            writer.begin(path)
        round_end = time.monotonic() + _ROUND_SECONDS
        while time.monotonic() < round_end:
            problems += _operate(caller, name)
            place.recover()
        written = [writer.end() for writer in present]
        place.settle()
        written += others()  # not earlier: recovery may insert lines, which is an exchange too
        place.report.lines += sum(map(len, written))
        problems += missing_doubled_disordered(path, written)
        problems += _incomplete(place, name, path)
    return problems


def _operate(caller: Caller, name: SessionName) -> list[str]:
    problems = []
    operations: dict[str, Callable[[SessionName], SessionResult]] = {
        "extract": caller.extract,
        "restore_all": partial(performed.restore_all, caller),
    }
    for which, operate in operations.items():
        try:
            result = operate(name)
        except (Busy, Conflict):
            continue
        if str(result.status) == "failed":
            problems.append(f"{which}: {result.reason}")
    return problems


def _incomplete(place: Arena, name: SessionName, path: Path) -> list[str]:
    """Whether everything can be put back, now that no process writes."""
    set_idle(path)
    with patch.object(protocol, "Exchange", Exchange):  # the exchange is no longer interrupted
        result = performed.restore_all(place.caller(), name)
    problems = [f"not restored: {result}"] if result.unavailable else []
    lines = path.read_bytes().split(b"\n")[:-1]
    problems += [f"still away: {raw[:60]!r}" for raw in lines if b"[[extracted-" in raw]
    originals = [json.loads(raw) for raw in session().split(b"\n")[:-1]]
    for original, raw in zip(originals, lines, strict=False):
        entry = json.loads(raw)
        entry.pop("_restored", None)
        if entry != original:
            problems.append(f"{original['id']} is not what it was")
    return problems


class StoppingExchanger:
    """Stops the world between the steps, so that other processes act just then."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._late = 0
        self._fresh: list[list[str]] = []

    def exchange(self, path: Path, draft: Draft, *more: Any, after_step: Step, **how: Any) -> Any:
        held = ExitStack()
        mood = self._chance.choice(["wait", "wait", "drain", "hold", "late", "none"])

        def stop(step: str) -> None:
            after_step(step)
            self._do(mood, step, str(draft.file), held)

        made = Exchange(path, draft, *more, after_step=stop, **how)
        run = made.run

        def stopped() -> None:
            with held:
                run()
            if mood == "late" and made.failure is None:
                # The kernel's corner: an opener between the look-up and the open count.
                self._write(str(draft.file))

        made.run = stopped  # type: ignore[method-assign]
        return made

    def written(self) -> list[list[str]]:
        """The lines that came through displaced files since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def _do(self, mood: str, step: str, displaced: str, held: ExitStack) -> None:
        match mood, step:
            case "wait", "verified" | "exchanged" | "draining":
                time.sleep(0.003)  # a process that comes now has to wait for bsd
            case "drain", "draining":
                self._write(displaced)
            case "hold", "draining":
                held.callback(os.close, self._write(displaced, keep=True))

    def _write(self, displaced: str, *, keep: bool = False) -> int:
        identity = (
            f"late{self._late}-0"  # each through a descriptor of its own: no order among them
        )
        self._late += 1
        message = {"role": "user", "content": "late"}
        body = {"type": "message", "id": identity, "parentId": None, "message": message}
        fd = os.open(displaced, os.O_WRONLY | os.O_APPEND)
        os.write(fd, json.dumps(body).encode() + b"\n")
        self._fresh.append([identity])
        if not keep:
            os.close(fd)
        return fd


_TOP = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def on_linux() -> None:
    # elsewhere no lease proves that the file is unused, and 30 s of quiet are needed
    require_linux()


def test_three_writers_against_continuous_extraction_and_restoration() -> None:
    with (
        NodeWriter("first", "reopen") as first,
        NodeWriter("second", "reopen") as second,
        NodeWriter("holder", "hold") as holder,
        arena("three writers") as place,
    ):
        wanted = 100 * min(1.0, SECONDS / 30)
        problems = storm(
            place,
            [first, second, holder],
            SECONDS,
            enough=lambda report: report.commits >= wanted,
        )
        report = place.report
    assert problems == [], "\n".join(problems[:20])
    assert report.commits >= wanted, report
    assert report.lines > 5 * wanted, report


def test_stopped_between_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drained lines, undone exchanges and late bytes: each really occurred."""
    stopping = StoppingExchanger(seed=1)
    monkeypatch.setattr(protocol, "Exchange", stopping.exchange)
    with (
        NodeWriter("first", "reopen") as first,
        NodeWriter("second", "reopen") as second,
        arena("stopped between the steps") as place,
    ):
        problems = storm(place, [first, second], SECONDS / 3, stopping.written, enough=_all_kinds)
        report = place.report
    assert problems == [], "\n".join(problems[:20])
    assert _all_kinds(report), report


def _all_kinds(report: Report) -> bool:
    return bool(report.drained_lines and report.late_lines and report.give_ups["drain_timeout"])


def test_a_permanent_holder_gives_no_commits_and_intact_lines() -> None:
    with NodeWriter("appender", "reopen") as appender, arena("a permanent holder") as place:
        name = SessionName("main", "chat0")
        path = place.new_session(name)
        before = path.read_bytes()
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        written = [_line(number) for number in range(60)]
        caller = place.caller()
        appender.begin(path)
        try:
            for data in written:
                os.write(fd, data)
                caller.extract(name)
        finally:
            os.close(fd)
        lines = appender.end()
        ids = [json.loads(data)["id"] for data in written]
        assert place.report.commits == 0
        assert place.report.give_ups
        assert path.read_bytes().startswith(before)
        assert missing_doubled_disordered(path, [lines, ids]) == []


def _line(number: int) -> bytes:
    message = {"role": "user", "content": "go on"}
    entry = {"type": "message", "id": f"holding-{number}", "message": message}
    return json.dumps(entry).encode() + b"\n"


_OTHER = """
import sys, time
from pathlib import Path
from unittest.mock import patch
from bsd.core.layout import SessionName
from tests.sessions.commit.test_storm import Arena, _operate
from tests.sessions.commit.chaos_report import Report
from tests.waiting import DEADLINE_SECONDS

root, name, seconds = sys.argv[1:]
place = Arena(Path(root), Report("the other"))
caller = place.caller()
end = time.monotonic() + float(seconds)
latest = end + DEADLINE_SECONDS
problems = []
while (now := time.monotonic()) < end or (now < latest and not place.report.commits):
    problems += _operate(caller, SessionName.parse(name))
    place.recover()
print(place.report.commits, problems)
"""


def test_two_bsd_at_once_on_one_session() -> None:
    how_long = SECONDS / 6
    with NodeWriter("appender", "reopen") as appender, arena("two bsd") as place:
        name = SessionName("main", "chat0")
        path = place.new_session(name)
        appender.begin(path)
        others = [
            subprocess.Popen(
                [sys.executable, "-c", _OTHER, str(place.layout.root), str(name), str(how_long)],
                cwd=_TOP,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        # A slow machine may never finish between two lines, the less the longer the session is.
        with suppress(subprocess.TimeoutExpired):
            for other in others:
                other.wait(2 * how_long + 5)
        written = appender.end()
        said = [other.communicate()[0].strip() for other in others]
        place.report.lines = len(written)
        place.settle()
        assert [text.partition(" ")[2] for text in said] == ["[]", "[]"], said
        place.report.commits = sum(int(text.partition(" ")[0]) for text in said)
        assert place.report.commits, said
        assert missing_doubled_disordered(path, [written]) == []


_BUSY = """
import os
os.nice(5)
while True:
    sum(range(100_000))
"""


def test_leases_are_short_beside_busy_children() -> None:
    """The report contains the figure (10 ms is the target); a loaded machine is no defect."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(2)]
    try:
        with (
            NodeWriter("appender", "reopen") as appender,
            arena("two busy children beside it") as place,
        ):
            problems = storm(place, [appender], SECONDS / 6)
            report = place.report
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert problems == [], "\n".join(problems[:20])
    assert report.commits, report
    assert report.longest_lease_ms > 0

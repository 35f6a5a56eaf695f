"""Children: their answers arrive unchanged, and a task that kills its child costs one attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import bsd
from bsd.actions.restore import restore
from bsd.core.config_file import ConfigService
from bsd.core.errors import BsdError, Busy, FieldError, Invalid, Unavailable
from bsd.core.layout import Layout, SessionName
from bsd.daemon import child_tasks, children, tasks
from bsd.daemon.child import Stopping, TaskRequest
from bsd.daemon.children import IDLE_SECONDS, ChildDied, Children
from bsd.planning.result import SessionResult, Status
from bsd.planning.targets import Refused
from bsd.sessions.commit.inflight import InFlight
from tests.daemon import odd_tasks
from tests.daemon.running import is_alive
from tests.logs import capture_logs
from tests.needs import require_linux
from tests.session_files import NAME, conversation, write
from tests.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.daemon

PLACEHOLDER = b"[[extracted-"
_SOAK = pytest.mark.soak
_TOP = Path(bsd.__file__).parents[1]


class House:
    """Children of a root with a session."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.path = write(layout, conversation(3))
        self.config = ConfigService(layout.config_file)
        self.config.update({"keep_recent": 0, "min_value_length": 500})
        self.counted: Counter[str] = Counter()
        self.now = 100.0
        self.made: list[Children] = []
        self.children = self.make()

    def make(self, **how: Any) -> Children:
        made = Children(
            self.layout,
            self.config,
            quiet_seconds=2.0,
            count=lambda what: self.counted.update([what]),
            clock=lambda: self.now,
            **how,
        )
        self.made.append(made)
        return made

    def extract(self) -> SessionResult | None:
        return self.children.call(odd_tasks.extract, NAME, session=NAME, background=True)

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def house(layout: Layout) -> Iterator[House]:
    require_linux()
    house = House(layout)
    yield house
    for one in house.made:
        one.stop()


def test_what_is_asked_and_answered_comes_through_as_it_is(house: House) -> None:
    what = [NAME, house.path, "lone \ud800", {"deep": (1, 2.5, None)}, b"\x00"]
    assert house.children.call(odd_tasks.give, what) == what


def test_an_error_is_raised_as_if_it_had_happened_here(house: House) -> None:
    for error in (
        Busy("in use", hint="again in 3 s", again_in=2.5),
        Invalid("bad", errors=(FieldError("a", "no"),)),
        Refused("replace", [FieldError("x", "gone"), FieldError("y", "there twice")]),
        Unavailable("no room"),
    ):
        with pytest.raises(type(error)) as raised:
            house.children.call(odd_tasks.fail, error)
        assert vars(raised.value) == vars(error)
        assert str(raised.value) == str(error)


def test_what_nobody_expected_comes_with_its_traceback_and_the_child_goes_on(house: House) -> None:
    first = house.children.call(odd_tasks.pid)
    with pytest.raises(RuntimeError, match=r"(?s)ZeroDivisionError.*in fail"):
        house.children.call(odd_tasks.fail, ZeroDivisionError("no"))
    assert house.children.call(odd_tasks.pid) == first
    assert house.counted == {"children_started": 1}


def test_what_happens_on_the_way_is_heard_and_asked(house: House) -> None:
    heard: list[int] = []
    answer = house.children.call(
        odd_tasks.tell_and_ask, handlers={"told": heard.append, "asked": lambda n: n * 21}
    )
    assert (heard, answer) == ([1], 42)


def test_what_cannot_be_sent_hurts_nobody(house: House) -> None:
    with pytest.raises(Exception, match=r"pickle|get local object"):
        house.children.call(odd_tasks.give, lambda: None)
    assert house.children.call(odd_tasks.give, 1) == 1


def test_one_child_serves_again_and_again_until_nobody_comes(house: House) -> None:
    woken: list[float] = []
    some = house.make(wake=lambda: woken.append(house.now))
    first = some.call(odd_tasks.pid)
    assert some.call(odd_tasks.pid) == first
    assert woken
    assert [one["pid"] for one in some.snapshot()] == [first]
    assert some.step(house.now + 1) == house.now + IDLE_SECONDS
    assert is_alive(first)
    assert some.step(house.now + IDLE_SECONDS) is None
    assert not is_alive(first)
    assert some.snapshot() == []
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: some.warm(), range(4)))
    some.warm()  # started before the call that needs it, and once
    [ready] = some.snapshot()
    assert ready["pid"] != first
    assert some.call(odd_tasks.pid) == ready["pid"]
    assert house.counted["children_died"] == 0


def test_who_waits_is_not_served_by_one_in_the_background(house: House) -> None:
    one = house.children.call(odd_tasks.pid)
    other = house.children.call(odd_tasks.pid, background=True)
    assert one != other
    assert os.getpriority(os.PRIO_PROCESS, other) > os.getpriority(os.PRIO_PROCESS, one)
    # A session of its own would be a scheduling group of its own, in which nice has no effect.
    assert os.getsid(other) == os.getsid(0)


def test_each_thread_has_its_own(house: House) -> None:
    meet = threading.Barrier(3, timeout=DEADLINE_SECONDS)
    found: list[Any] = []

    def ask() -> None:
        heard = {"told": lambda _: meet.wait(), "asked": lambda n: n}
        found.append(house.children.call(odd_tasks.tell_and_ask, handlers=heard))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2, 2, 2]
    assert house.counted["children_started"] == 3


def test_the_terminal_s_signals_are_not_for_children(house: House) -> None:
    pid = house.children.call(odd_tasks.pid)
    assert os.getpgid(pid) != os.getpgid(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
        assert house.children.call(odd_tasks.pid) == pid


# --- deaths ---


def test_one_that_died_without_work_is_replaced_and_nobody_hurt(house: House) -> None:
    pid = house.children.call(odd_tasks.pid)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid))
    assert house.children.call(odd_tasks.give, 5) == 5
    assert house.counted == {"children_started": 2, "children_died": 1}


def test_one_that_dies_while_it_sends_has_died(house: House) -> None:
    with pytest.raises(ChildDied, match="code 9"):
        house.children.call(odd_tasks.die_while_sending)
    assert house.counted == {"children_started": 1, "children_died": 1}


def test_a_request_that_ends_each_child_is_given_up(house: House) -> None:
    house.children.call(odd_tasks.pid)
    with pytest.raises(ChildDied, match="code 1"):
        house.children.call(odd_tasks.give, odd_tasks.Unreadable())
    assert house.counted == {"children_started": 2, "children_died": 2}


def test_a_death_is_a_clear_failure_of_that_call(house: House) -> None:
    for deaths, number in enumerate((signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT), 1):
        with capture_logs() as lines, pytest.raises(ChildDied, match=number.name) as raised:
            house.children.call(odd_tasks.die, number, session=NAME)
        assert raised.value.hint
        (told,) = [one for one in lines if one["event"] == "A child has died"]
        assert told["session"] == str(NAME)
        assert house.counted["children_died"] == deaths
    assert house.children.call(odd_tasks.give, 1) == 1


@pytest.mark.parametrize(
    ("step", "committed"),
    [
        ("verified", False),
        ("exchanged", True),
        *(pytest.param(one, False, marks=_SOAK) for one in ("opened", "leased_old", "leased_new")),
        *(pytest.param(one, True, marks=_SOAK) for one in ("draining", "released")),
    ],
)
def test_a_death_in_an_exchange_is_put_in_order_at_once(
    house: House, step: str, committed: bool
) -> None:
    """`sessions/commit/test_kill.py` ends a commit after each step; here only its child differs."""
    before = house.content
    with capture_logs() as lines, pytest.raises(ChildDied):
        house.children.call(odd_tasks.die_at, NAME, step, session=NAME)
    assert "A commit in flight was recovered" in [one["event"] for one in lines]
    assert (house.content == before) is not committed
    assert not list(house.path.parent.glob("*.lock")), "the lock of a dead process stays nowhere"
    assert len(list(InFlight(house.layout).records())) == 1, "what is displaced has its minute"
    os.utime(house.path, (0, 0))
    result = house.extract()
    assert result is not None
    assert result.status is (Status.UNCHANGED if committed else Status.EXTRACTED)
    assert house.content.count(PLACEHOLDER) == 3


def test_what_takes_too_much_memory_fails_alone(house: House) -> None:
    small = house.make(room=256 << 20)
    with pytest.raises(Unavailable, match="more than the 256 MB of memory"):
        small.call(odd_tasks.take_memory, 1 << 30)
    assert small.call(odd_tasks.take_memory, 1 << 20) == 1 << 20
    assert house.counted == {"children_started": 2, "children_died": 1}


def test_a_line_may_be_as_long_as_its_file(house: House) -> None:
    """The bound follows what a session needs: here 80 MB in one line."""
    long = {"type": "custom", "id": "huge", "data": "y" * (80 << 20)}
    path = write(house.layout, [*conversation(3), long])
    small = house.make(room=160 << 20)
    result = small.call(odd_tasks.extract, NAME, session=NAME)
    assert result is not None
    assert result.status is Status.EXTRACTED
    assert path.read_bytes().count(PLACEHOLDER) == 3


def test_one_that_gives_no_sign_of_life_is_ended(house: House) -> None:
    hasty = house.make(longest_step=0.2)
    with capture_logs() as lines, pytest.raises(ChildDied, match="SIGKILL"):
        hasty.call(odd_tasks.hang, 60.0)
    assert "A child hangs and is killed" in [one["event"] for one in lines]
    assert hasty.call(odd_tasks.give, 1) == 1


def test_one_that_holds_a_lease_is_waited_for(house: House) -> None:
    hasty = house.make(longest_step=0.1)
    if not hasty.call(odd_tasks.hang_with_lease, str(house.path), 0.0):
        pytest.skip("no leases here")
    hasty.call(odd_tasks.hang_with_lease, str(house.path), 1.0)
    assert house.counted["children_died"] == 0


def test_one_that_cannot_begin_is_an_error(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = house.make(program="import sys; sys.exit(3)")
    with pytest.raises(BsdError, match="does not start"):
        broken.call(odd_tasks.pid)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(BsdError, match="starting a child process"):
        house.children.call(odd_tasks.pid)


def test_another_release_does_not_work_for_this_one(house: House) -> None:
    begin, load, rest = children._PROGRAM.partition("from bsd.daemon.child import main")
    assert load, "the program is another one now"
    other = "import bsd; bsd.__version__ = '99'\n"
    later = house.make(program=f"{begin}{other}{load}{rest}")
    with pytest.raises(Unavailable, match="bsd 99 is installed") as raised:
        later.call(odd_tasks.pid)
    assert "restart the daemon" in str(raised.value.hint)


# --- the end ---


def test_a_stop_ends_work_where_nothing_is_half_done(house: House) -> None:
    begun = threading.Event()
    ended: list[BaseException] = []

    def work() -> None:
        try:
            house.children.call(odd_tasks.work_until_stopped, handlers={"alive": begun.set})
        except Stopping as stop:
            ended.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(DEADLINE_SECONDS)
    house.children.stop()
    thread.join(DEADLINE_SECONDS)
    assert len(ended) == 1
    assert house.children.snapshot() == []
    with pytest.raises(Stopping):
        house.children.call(odd_tasks.pid)


def test_a_stop_waits_for_nobody_who_is_only_starting(house: House) -> None:
    slow = house.make(program="import time; time.sleep(600)")
    ended: list[BaseException] = []

    def work() -> None:
        try:
            slow.call(odd_tasks.pid)
        except Stopping as stop:
            ended.append(stop)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: house.counted["children_started"] == 1)
    slow.stop()
    thread.join(DEADLINE_SECONDS)
    assert len(ended) == 1
    assert slow.join(0.0)


def test_a_stop_waits_for_nobody_who_only_reads(house: House) -> None:
    begun = threading.Event()
    ended: list[BaseException] = []

    def read() -> None:
        heard = {"alive": begun.set}
        try:
            house.children.call(odd_tasks.hang, 600.0, only_reads=True, handlers=heard)
        except Stopping as stop:
            ended.append(stop)

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(DEADLINE_SECONDS)
    house.children.stop()
    assert house.children.join(time.monotonic() + DEADLINE_SECONDS)
    thread.join(DEADLINE_SECONDS)
    assert len(ended) == 1
    assert house.counted["children_died"] == 0


def test_an_answer_that_comes_behind_a_stop_is_not_taken_for_work(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer() -> bool:
        house.children.stop()
        return True

    with pytest.raises(Stopping):
        house.children.call(odd_tasks.ask, handlers={"question": answer})
    assert house.children.join(time.monotonic() + DEADLINE_SECONDS)
    assert "Traceback" not in capfd.readouterr().err


def _stop_and_see_it_end(house: House) -> None:
    (child,) = house.children.snapshot()
    house.children.stop()
    wait_for(lambda: not is_alive(child["pid"]), "the child to end")


def test_the_last_word_of_one_that_ended_before_it_was_answered_is_heard(house: House) -> None:
    def answer() -> bool:
        _stop_and_see_it_end(house)
        return True

    with pytest.raises(Stopping):
        house.children.call(odd_tasks.ask, handlers={"question": answer})
    assert house.counted["children_died"] == 0


def test_one_that_was_told_to_stop_before_its_order_came_has_not_died(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = house.children._request

    def too_late(*about: Any) -> TaskRequest:
        _stop_and_see_it_end(house)
        return order(*about)

    monkeypatch.setattr(house.children, "_request", too_late)
    with pytest.raises(Stopping):
        house.children.call(odd_tasks.pid)
    assert house.counted["children_died"] == 0


def test_one_who_was_at_a_session_is_asked_about_it_again(house: House) -> None:
    """That child may have the session in memory; otherwise the last child that worked is asked."""
    names = [SessionName("main", text) for text in "abc"]
    both = threading.Barrier(2)
    pids: dict[SessionName, int] = {}

    def ask(name: SessionName) -> None:
        pids[name] = house.children.call(odd_tasks.pid, session=name, handlers={"alive": both.wait})

    threads = [threading.Thread(target=ask, args=[name]) for name in names[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert len(set(pids.values())) == 2
    last = 0
    for name in (names[0], names[1], names[0], names[2], names[1]):
        found = house.children.call(odd_tasks.pid, session=name)
        assert found == pids.get(name, last)
        last = found


_PARENT = """
import sys
from pathlib import Path
from bsd.daemon.children import Children
from bsd.core.layout import Layout, SessionName
from bsd.core.config_file import ConfigService
from tests.daemon import odd_tasks
from tests.session_files import NAME

layout = Layout(Path(sys.argv[1]))
children = Children(layout, ConfigService(layout.config_file), quiet_seconds=2.0)
print(children.call(odd_tasks.pid, background=True), flush=True)
children.call(
    odd_tasks.pause_at, NAME, sys.argv[2], Path(sys.argv[3]), session=NAME, background=True
)
"""


@pytest.mark.parametrize(
    "step",
    ["exchanged", *(pytest.param(step, marks=_SOAK) for step in ("leased_old", "released"))],
)
def test_a_child_whose_parent_is_killed_finishes_its_commit_and_leaves(
    house: House, tmp_path: Path, step: str
) -> None:
    """The moment when both files are at stake is tried by default, the others by `make soak`."""
    go_on = tmp_path / "go-on"
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(house.layout.root), step, str(go_on)],
        cwd=_TOP,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    wait_for(go_on.with_suffix(".there").exists, "the exchange")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    # The next daemon meets the lock of a session in work.
    met = house.extract()
    assert met is not None
    assert met.status is Status.BUSY
    assert is_alive(pid)
    go_on.touch()
    wait_for(lambda: not is_alive(pid), "the child to leave")
    assert house.content.count(PLACEHOLDER) == 3
    os.utime(house.path, (0, 0))
    result = house.extract()
    assert result is not None
    assert result.status is Status.UNCHANGED


# --- state that a child keeps ---


def test_settings_are_those_of_the_daemon_or_newer(house: House) -> None:
    ask: Callable[[], int] = lambda: house.children.call(odd_tasks.keep_recent)  # noqa: E731
    assert ask() == 0
    house.config.update({"keep_recent": 7})
    assert ask() == 7
    house.layout.config_file.write_text("{")  # by hand: the last valid settings stay
    assert ask() == house.config.current.keep_recent == 7
    fresh = house.make()
    assert fresh.call(odd_tasks.keep_recent) == 7
    house.layout.config_file.unlink()
    assert ask() == 7


def test_each_child_knows_of_the_others_commits(house: House) -> None:
    house.extract()
    other = house.children.call(odd_tasks.whose_commit, NAME, session=NAME, background=False)
    assert other
    assert house.counted["children_started"] == 2


def test_an_action_is_called_by_a_child(house: House) -> None:
    house.extract()
    heard: list[tuple[Any, ...]] = []
    os.utime(house.path, (0, 0))
    answer: Any = house.children.call(
        *(child_tasks.run_action, restore, (NAME, "e1"), {}, "api", 0.0),
        session=NAME,
        handlers={"attempted": lambda *what: heard.append(what)},
    )
    assert answer.keys_restored
    ((name, outcome),) = heard
    assert name == NAME
    assert outcome.committed
    with pytest.raises(BsdError):
        house.children.call(
            *(child_tasks.run_action, restore, (NAME, "nobody"), {}, "api", 0.0),
            session=NAME,
        )


def test_where_python_finds_things_is_decided_by_the_parent(house: House, tmp_path: Path) -> None:
    """A module of the working directory or the environment must not take precedence."""
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    path = os.pathsep.join(filter(None, sys.path))
    program = f"import sys; sys.argv[1:] = [{str(house.layout.root)!r}]; " + _PARENT.partition(
        "children.call(\n"
    )[0].strip().replace("\n", "\nimport os\n", 1)
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"], "PYTHONSTARTUP": "json.py"},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout)


def test_small_savings_wait_and_calls_are_carried_out_first(house: House) -> None:
    """`look_into` as a worker asks for it."""
    result = house.children.call(
        _look_into, session=NAME, handlers={"goes_on": lambda _: True}, background=True
    )
    assert result is not None
    assert result.status is Status.EXTRACTED


def _look_into(one: Any) -> SessionResult | None:
    return tasks.look_into(one, NAME, waited=0.0, urgent=False)


def test_the_arguments_of_an_edit_can_be_sent(house: House) -> None:
    from bsd.planning.edit import setting

    wish = setting([(("message", "role"), "user")])
    asked = house.children.call(odd_tasks.give, wish)
    assert asked({"message": {"role": "x"}}) == {"message": {"role": "user"}}


def test_a_death_among_several_is_about_the_one_at_work(house: House) -> None:
    """The files in flight of earlier commits are handled as well."""
    others = [SessionName("main", f"other{n}") for n in range(3)]
    for other in others:
        write(house.layout, conversation(3), other)
    several = [others[0], NAME, *others[1:]]
    began: list[SessionName] = []
    with pytest.raises(ChildDied):
        house.children.call(
            *(odd_tasks.die_among, several, NAME),
            several=dict.fromkeys(several, 1000),
            handlers={"began": began.append},
        )
    assert began == [others[0], NAME]
    assert list(InFlight(house.layout).records()) != []
    assert [PLACEHOLDER in house.layout.transcript(one).read_bytes() for one in several] == [
        True,
        True,
        False,
        False,
    ]
    wanted = [tasks.ToLook(one, 0.0, urgent=True) for one in several]
    found = house.children.call(
        *(tasks.look_into_several, wanted),
        several=dict.fromkeys(several, 1000),
        handlers={"began": began.append, "goes_on": lambda _: True},
    )
    assert len(found) == len(several)
    assert began == [others[0], NAME, *several]


def test_what_several_remember_comes_back(house: House) -> None:
    wanted = [tasks.ToLook(NAME, 0.0, urgent=True)]
    house.children.call(tasks.look_into_several, wanted, several={NAME: 1000}, background=True)
    assert house.children.call(odd_tasks.whose_commit, NAME, session=NAME)
    assert house.children.call(odd_tasks.whose_commit, NAME, several={NAME: 1000})

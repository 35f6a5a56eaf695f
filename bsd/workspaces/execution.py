"""Running programs in workspaces: held, boxed if possible, and noted whatever becomes of them."""

import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bsd.core.errors import Invalid, Unavailable
from bsd.core.formatting import format_size
from bsd.workspaces import record, tree
from bsd.workspaces.isolation import (
    BUBBLEWRAP,
    PATH,
    Account,
    account_of,
    box,
    counts_processes,
    hand_over,
    seccomp_filter,
    why_not_isolated,
    with_environment,
)
from bsd.workspaces.place import (
    DEFAULT_ROOT,
    OpenWorkspace,
    lock,
    open_root,
    system_errors,
    workspace_in_use,
)
from bsd.workspaces.process import Ended, Limits, group, run_process
from bsd.workspaces.record import FILE_NAME, SessionMetadata

# How far a limit holds.
ALL = "of all its processes together"
EACH = "of each process"
NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How a run ended. `error` is None if the program succeeded, else one sentence.

    `isolated` says whether bubblewrap held it; if not, `isolation` says why. `user` is the number
    of the user it ran as, `limits` says for each limit how far it held. Output is the first bytes
    that the limits allow, as text where it is UTF-8.
    """

    session_id: str
    argv: tuple[str, ...]
    exit_code: int | None  # None: killed by a signal, or never started
    signal: str | None
    timed_out: bool
    seconds: float
    stdout: str
    stderr: str
    stdout_bytes: int  # written in all
    stderr_bytes: int
    truncated: bool
    isolated: bool
    isolation: str
    user: int
    limits: dict[str, str]
    error: str | None
    metadata: SessionMetadata | None  # as noted afterwards; None for a workspace without any

    @property
    def succeeded(self) -> bool:
        return self.error is None


def execute(  # noqa: PLR0913 - a run has as many sides
    session_id: str,
    argv: Sequence[str],
    workspace_root: Path = DEFAULT_ROOT,
    *,
    limits: Limits | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    isolate: bool | None = None,
    readable: Sequence[Path] = (),
    clock: Callable[[], float] = time.time,
) -> ExecutionResult:
    """Run a program in a workspace and note that it was used, even if the program fails.

    It starts in the workspace with a clean environment (`env` is added), in a process group that
    is killed as a whole at its end. `isolate`: None uses bubblewrap if it works here, True insists
    (raises Unavailable), False goes without; root must ask for that. An isolated program has no
    network and no rights of root's, writes nothing but its workspace, and reads only that, the
    system's programs and `readable`. Prunings leave the workspace alone meanwhile. Raises NotFound,
    Invalid, Busy, Unavailable.
    """
    command = _checked(argv)
    _check_environment(env or {})
    reason = "not asked for" if isolate is False else why_not_isolated()
    if reason and isolate is not False:
        _refuse_in_the_open(reason, insisted=isolate is True)
    wish = _Wish(command, limits or Limits(), env or {}, stdin, tuple(readable), reason)
    run = _RunState()
    with open_root(Path(workspace_root)) as root, workspace_in_use(root, session_id) as space:
        with system_errors(f"preparing workspace {session_id}"):
            account = None if reason else account_of(space)
            record.begin(space)
        try:
            _run(space, wish, account, run)
        finally:
            with system_errors(f"noting the use of workspace {session_id}"):
                noted = record.end(space, lambda old: old.executed(clock(), run.error), clock())
    return _result(session_id, wish, run, noted)


def _refuse_in_the_open(reason: str, *, insisted: bool) -> None:
    """An ordinary user's programs may run without a box if there is none; root's may not."""
    hint = "apt install bubblewrap"
    if insisted:
        raise Unavailable(f"programs cannot be isolated: {reason}", hint=hint)
    if os.geteuid() == 0:
        raise Unavailable(
            f"root's programs are not run outside a box, and there is none: {reason}",
            hint=f"{hint}; or run it as an ordinary user, or with --no-isolate",
        )


@contextmanager
def _inherited(space: OpenWorkspace, *, isolated: bool) -> Iterator[tuple[int, ...]]:
    """A lock for the program itself: should it leave its process group, it goes on using the place.

    Out of a box nobody leaves, and none may get hold of a directory outside it.
    """
    if isolated:
        yield ()
        return
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=space.fd)
    try:
        lock(descriptor, f"workspace {space.session_id}", shared=True)
        yield (descriptor,)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to be run, and how; `not_isolated` says why not, None if it is."""

    command: tuple[str, ...]
    limits: Limits
    env: Mapping[str, str]
    stdin: bytes | None
    readable: tuple[Path, ...]
    not_isolated: str | None


@dataclass(slots=True)
class _RunState:
    """What becomes of it."""

    ended: Ended | None = None
    error: str | None = "it was broken off"
    user: int = field(default_factory=os.geteuid)
    held: dict[str, str] = field(default_factory=dict)


def _run(space: OpenWorkspace, wish: "_Wish", account: Account | None, run: _RunState) -> None:
    """Run it to its end, if it can be started at all; note what went wrong."""
    environment = {"PATH": PATH, "HOME": str(space.path), "LANG": "C.UTF-8", **wish.env}
    too_large = partial(_too_large, space, wish.limits.disk_bytes)
    problem = _unfit(wish.command, space.path, environment["PATH"]) or too_large()
    if problem:
        run.error = problem
        return
    if account is not None:
        run.user = account.uid
        with system_errors(f"giving workspace {space.session_id} to user {account.uid}"):
            hand_over(space, account)
    with system_errors(f"starting {wish.command[0]!r}"):
        _run_held(space, wish, account, run, environment, too_large)


def _run_held(
    space: OpenWorkspace,
    wish: _Wish,
    account: Account | None,
    run: _RunState,
    environment: Mapping[str, str],
    too_large: Callable[[], str | None],
) -> None:
    """Run it within its limits and, if it is isolated, its box; note how far they held."""
    boxed = wish.not_isolated is None
    with (
        _inherited(space, isolated=boxed) as held,
        group(wish.limits) as together,
        seccomp_filter() if boxed else nullcontext() as seccomp,
    ):
        counted = boxed and counts_processes(account)
        run.held = what_holds(wish.limits, together.missing, processes_counted=counted)
        argv: Sequence[str] = wish.command
        if boxed:
            argv = _boxed(space, wish, environment, account, seccomp, counted=counted)
        elif together.before:
            argv = [*with_environment(environment), *argv]
        # What goes before the program runs with all our rights: not in an environment that was
        # meant for the program, which may name libraries to load.
        outside = {"PATH": PATH, **dict(together.environment)}
        run.ended = run_process(
            argv,
            cwd=space.path,
            environment=outside if boxed or together.before else environment,
            limits=wish.limits,
            stdin=wish.stdin,
            held=held if seccomp is None else (*held, seccomp),
            before=together.before,
            objection=too_large if wish.limits.disk_bytes else None,
        )
        # A short one may have ended before anybody looked.
        complaint = run.ended.stopped or together.complaint(wish.limits) or too_large()
        run.error = _error(run.ended, wish.limits, complaint)


def _checked(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise Invalid(
            "a program is named by a list of words", hint='as in ["python3", "script.py"]'
        )
    if any("\0" in word for word in argv):
        raise Invalid("a word of the command holds a NUL character")
    return tuple(argv)


def _check_environment(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        words: tuple[object, ...] = (name, value)
        if not all(isinstance(word, str) and "\0" not in word for word in words):
            raise Invalid("a variable's name and value are texts without NUL characters")
        if not name or "=" in name:
            raise Invalid(f"{name!r} is no name of a variable")


def _unfit(command: tuple[str, ...], place: Path, path: str) -> str | None:
    """Why this command cannot even be started."""
    name = command[0]
    if "/" in name:
        file = place / name
        try:
            if not file.is_file():
                return f"there is no program {name!r}"
        except PermissionError:
            return f"{name!r} lies where user {os.geteuid()} may not look"
        return None if os.access(file, os.X_OK) else f"{name!r} is not executable"
    return None if shutil.which(name, path=path) else f"there is no program {name!r}"


def _boxed(
    space: OpenWorkspace,
    wish: _Wish,
    environment: Mapping[str, str],
    account: Account | None,
    seccomp: int | None,
    *,
    counted: bool,
) -> list[str]:
    protected = []
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(FILE_NAME, dir_fd=space.fd, follow_symlinks=False).st_mode):
            protected.append(FILE_NAME)
    before = box(
        space.path,
        environment,
        account=account,
        seccomp=seccomp,
        processes=wish.limits.processes if counted else 0,
        memory_bytes=wish.limits.memory_bytes,
        protected=protected,
        readable=wish.readable,
    )
    return [*before, *wish.command]


def _error(ended: Ended, limits: Limits, complaint: str | None) -> str | None:
    if ended.timed_out:
        return f"its time limit of {limits.seconds:g} s was over"
    if complaint:
        return complaint
    if ended.returncode < 0:
        return f"killed by {_signal(-ended.returncode)}"
    if ended.returncode > 128:  # as shells and bubblewrap tell it
        return f"exit code {ended.returncode} ({_signal(ended.returncode - 128)}?)"
    return f"exit code {ended.returncode}" if ended.returncode else None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"signal {number}"


def _result(
    session_id: str,
    wish: _Wish,
    run: _RunState,
    metadata: SessionMetadata | None,
) -> ExecutionResult:
    ended = run.ended
    code = ended.returncode if ended else None
    outputs = (ended.stdout, ended.stderr) if ended else ()
    texts = [bytes(output.kept).decode("utf-8", "replace") for output in outputs] or ["", ""]
    totals = [output.total for output in outputs] or [0, 0]
    return ExecutionResult(
        session_id=session_id,
        argv=wish.command,
        exit_code=code if code is not None and code >= 0 else None,
        signal=_signal(-code) if code is not None and code < 0 else None,
        timed_out=bool(ended and ended.timed_out),
        seconds=round(ended.seconds, 3) if ended else 0.0,
        stdout=texts[0],
        stderr=texts[1],
        stdout_bytes=totals[0],
        stderr_bytes=totals[1],
        truncated=any(output.truncated for output in outputs),
        isolated=wish.not_isolated is None,
        isolation=wish.not_isolated or BUBBLEWRAP,
        user=run.user,
        limits=run.held,
        error=run.error,
        metadata=metadata,
    )


# --- which limits hold for a run, and how far; the one that nobody but us holds: of the disk ---


def what_holds(
    limits: Limits, missing_group: str | None, *, processes_counted: bool
) -> dict[str, str]:
    """For each limit how far it holds, in words; `missing_group` says why there is no cgroup."""
    memory, processes = ALL, ALL
    if missing_group is not None:
        memory = f"{EACH}, not {ALL}: {missing_group}"
        if not processes_counted:
            processes = f"does not hold: {missing_group}"
    words = {
        "seconds": ALL,
        "cpu_seconds": EACH,
        "memory_bytes": memory,
        "processes": processes,
        "file_bytes": "of each file",
        "disk_bytes": "of the workspace, looked at every second",
    }
    return {name: how if getattr(limits, name) else NO_LIMIT for name, how in words.items()}


def _too_large(space: OpenWorkspace, most: int) -> str | None:
    """Say that the workspace holds more bytes than `most`, if it does; 0 is no limit.

    Where that cannot be seen now, the next look tells.
    """
    if not most:
        return None
    try:
        held = tree.held_bytes(space.fd)
    except (tree.Obstacle, OSError):
        return None
    if held <= most:
        return None
    return f"the workspace holds {format_size(held)}, more than its limit of {format_size(most)}"

"""Running programs in workspaces: isolated by default; every run is recorded in the metadata."""

import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bsd.core.errors import Invalid
from bsd.core.formatting import format_size
from bsd.workspaces import record, tree
from bsd.workspaces.isolation import (
    BUBBLEWRAP,
    NOBODY,
    PATH,
    require_isolation,
    sandbox,
    scope,
    scope_environment,
    why_no_scope,
)
from bsd.workspaces.place import (
    DEFAULT_ROOT,
    OpenWorkspace,
    lock,
    open_root,
    system_errors,
    workspace_in_use,
)
from bsd.workspaces.process import Ended, Limits, ProcessOutput, run_process
from bsd.workspaces.record import FILE_NAME, SessionMetadata

# The scope of a limit.
ALL = "of all its processes together"
EACH = "of each process"
NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The result of a run. `error` is None if the program succeeded, else a sentence.

    `isolated`: the program ran in bubblewrap; if not, `isolation` gives the reason. `user` is the
    uid of the program, `limits` the scope of each limit in words. Output is limited to its first
    bytes and decoded as UTF-8; invalid bytes are replaced.
    """

    session_id: str
    argv: tuple[str, ...]
    exit_code: int | None  # None: killed by a signal, or never started
    signal: str | None
    timed_out: bool
    seconds: float
    stdout: str
    stderr: str
    stdout_bytes: int  # total
    stderr_bytes: int
    truncated: bool
    isolated: bool
    isolation: str
    user: int
    limits: dict[str, str]
    error: str | None
    metadata: SessionMetadata | None  # after the run; None if the workspace has none

    @property
    def succeeded(self) -> bool:
        return self.error is None


def execute(  # noqa: PLR0913 - options of a run
    session_id: str,
    argv: Sequence[str],
    workspace_root: Path = DEFAULT_ROOT,
    *,
    limits: Limits | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    isolate: bool = True,
    readable: Sequence[Path] = (),
    clock: Callable[[], float] = time.time,
) -> ExecutionResult:
    """Run a program in a workspace and record the use, even if the program fails.

    The program starts in the workspace with a clean environment, in a process group that is killed
    at its end. During the run, the workspace is not pruned.

    Args:
        env: variables that are added to the environment.
        isolate: run the program in bubblewrap's sandbox: no network, no capabilities; it can write
            only to its workspace, and read only that, the system's programs and `readable`. If
            False, the program has all rights of the caller.

    Raises:
        Unavailable: isolation does not work on this machine.
        Forbidden: root's programs could not be isolated in this workspace root.
        NotFound: the workspace does not exist.
        Invalid: bad arguments.
        Busy: the workspace is locked.
    """
    command, limits, env = _checked(argv), limits or Limits(), env or {}
    _check_environment(env)
    environment = {"PATH": PATH, "HOME": "", "LANG": "C.UTF-8", **env}
    ended: Ended | None = None
    error: str | None = "it was broken off"
    with open_root(Path(workspace_root)) as root, workspace_in_use(root, session_id) as space:
        if isolate:
            require_isolation(space)
        if "HOME" not in env:
            environment["HOME"] = str(space.path)
        with system_errors(f"preparing workspace {session_id}"):
            record.begin(space)
        try:
            error = _unfit(command, space.path, environment["PATH"])
            error = error or _too_large(space, limits.disk_bytes)
            if error is None:
                error = "it was broken off"
                with system_errors(f"starting {command[0]!r}"):
                    ended = _run(
                        space, command, environment, limits, stdin, readable if isolate else None
                    )
                # A short program may have ended before the first check of the workspace's size.
                reason = ended.stopped or _too_large(space, limits.disk_bytes)
                error = _error(ended, limits, reason)
        finally:
            with system_errors(f"noting the use of workspace {session_id}"):
                noted = record.end(space, lambda old: old.executed(clock(), error), clock())
    code = ended.returncode if ended else None
    stdout, stderr = (ended.stdout, ended.stderr) if ended else (ProcessOutput(0), ProcessOutput(0))
    return ExecutionResult(
        session_id=session_id,
        argv=command,
        exit_code=code if code is not None and code >= 0 else None,
        signal=_signal(-code) if code is not None and code < 0 else None,
        timed_out=bool(ended and ended.timed_out),
        seconds=round(ended.seconds, 3) if ended else 0.0,
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_bytes=stdout.total,
        stderr_bytes=stderr.total,
        truncated=stdout.truncated or stderr.truncated,
        isolated=isolate,
        isolation=BUBBLEWRAP if isolate else "not asked for",
        user=NOBODY if isolate and os.geteuid() == 0 else os.geteuid(),
        limits=limits_held(limits, isolated=isolate) if ended else {},
        error=error,
        metadata=noted,
    )


def limits_held(limits: Limits, *, isolated: bool) -> dict[str, str]:
    """Return the scope of each limit in words."""
    missing = why_no_scope() if isolated else "it is not isolated"
    words = {
        "seconds": ALL,
        "cpu_seconds": EACH,
        "memory_bytes": f"{EACH}, not {ALL}: {missing}" if missing else ALL,
        "processes": f"does not hold: {missing}" if missing else ALL,
        "file_bytes": "of each file",
        "disk_bytes": "of the workspace, checked every second",
    }
    return {name: how if getattr(limits, name) else NO_LIMIT for name, how in words.items()}


def _run(
    space: OpenWorkspace,
    command: Sequence[str],
    environment: Mapping[str, str],
    limits: Limits,
    stdin: bytes | None,
    readable: Sequence[Path] | None,
) -> Ended:
    """Run a program to its end; `readable` is None to run it without isolation."""

    def too_large() -> str | None:
        return _too_large(space, limits.disk_bytes)

    if readable is None:
        # A process that leaves the process group still uses the workspace, so it inherits a lock.
        held = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=space.fd)
        try:
            lock(held, f"workspace {space.session_id}", shared=True)
            return run_process(
                command,
                cwd=space.path,
                environment=environment,
                limits=limits,
                stdin=stdin,
                inherited=[held],
                objection=too_large,
            )
        finally:
            os.close(held)
    protected = []
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(FILE_NAME, dir_fd=space.fd, follow_symlinks=False).st_mode):
            protected.append(FILE_NAME)
    before = sandbox(
        space.path,
        environment,
        protected=protected,
        readable=readable,
        memory_bytes=limits.memory_bytes,
    )
    if (limits.memory_bytes or limits.processes) and why_no_scope() is None:
        before = [*scope(limits), *before]
    return run_process(
        [*before, *command],
        cwd=space.path,
        # Not the program's environment, which could make bubblewrap load other libraries.
        environment={"PATH": PATH, **scope_environment()},
        limits=limits,
        stdin=stdin,
        objection=too_large,
    )


def _checked(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise Invalid(
            "a command is a list of words", hint='write it as in ["python3", "script.py"]'
        )
    if any("\0" in word for word in argv):
        raise Invalid("a word of the command contains a NUL character")
    return tuple(argv)


def _check_environment(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        words: tuple[object, ...] = (name, value)
        if not all(isinstance(word, str) and "\0" not in word for word in words):
            raise Invalid("a variable's name and value are strings without NUL characters")
        if not name or "=" in name:
            raise Invalid(f"{name!r} is not a name of a variable")


def _unfit(command: Sequence[str], place: Path, path: str) -> str | None:
    """Return the reason why this command cannot be started; None if it can."""
    name = command[0]
    if "/" in name:
        file = place / name
        try:
            if not file.is_file():
                return f"there is no program {name!r}"
        except PermissionError:
            return f"{name!r} is in a directory that user {os.geteuid()} may not enter"
        return None if os.access(file, os.X_OK) else f"{name!r} is not executable"
    return None if shutil.which(name, path=path) else f"there is no program {name!r}"


def _error(ended: Ended, limits: Limits, reason: str | None) -> str | None:
    if ended.timed_out:
        return f"its time limit of {limits.seconds:g} s was over"
    if reason:
        return reason
    if ended.returncode < 0:
        return f"killed by {_signal(-ended.returncode)}"
    if ended.returncode > 128:  # a signal, as shells and bubblewrap report it
        return f"exit code {ended.returncode} ({_signal(ended.returncode - 128)}?)"
    return f"exit code {ended.returncode}" if ended.returncode else None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _too_large(space: OpenWorkspace, most: int) -> str | None:
    """Return an error if the workspace has more than `most` bytes; 0 means no limit.

    Returns None if the workspace cannot be measured now; the next call may succeed.
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

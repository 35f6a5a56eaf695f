"""Running programs in workspaces: isolated unless asked otherwise, and noted however they end."""

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

# How far a limit holds.
ALL = "of all its processes together"
EACH = "of each process"
NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How a run ended. `error` is None if the program succeeded, else one sentence.

    `isolated`: bubblewrap held it; if not, `isolation` says why. `user` is the number of the user
    it ran as, `limits` says for each limit how far it held. Output is the first bytes that the
    limits allow, as text where it is UTF-8.
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
    isolate: bool = True,
    readable: Sequence[Path] = (),
    clock: Callable[[], float] = time.time,
) -> ExecutionResult:
    """Run a program in a workspace and note that it was used, even if the program fails.

    It starts in the workspace with a clean environment, in a process group that is killed at its
    end. Prunings leave the workspace alone meanwhile.

    Args:
        env: variables that are added to the environment.
        isolate: run it in bubblewrap's sandbox: without network and capabilities, writing only to
            its workspace, reading only that, the system's programs and `readable`. False runs it
            with all rights of the caller.

    Raises:
        Unavailable: it cannot be isolated here.
        Forbidden: root's programs could not be isolated in this workspace root.
        NotFound, Invalid, Busy: the workspace, the arguments, another program.
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
                # A short program may have ended before the first look at its workspace.
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
    """Return for each limit how far it holds, in words."""
    missing = why_no_scope() if isolated else "it is not isolated"
    words = {
        "seconds": ALL,
        "cpu_seconds": EACH,
        "memory_bytes": f"{EACH}, not {ALL}: {missing}" if missing else ALL,
        "processes": f"does not hold: {missing}" if missing else ALL,
        "file_bytes": "of each file",
        "disk_bytes": "of the workspace, looked at every second",
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
    """Run a program to its end; `readable` is None if it is not to be isolated."""

    def too_large() -> str | None:
        return _too_large(space, limits.disk_bytes)

    if readable is None:
        # A process that leaves the process group goes on using the workspace: it inherits a lock.
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
        # Not the program's environment, which may name libraries that bubblewrap would load.
        environment={"PATH": PATH, **scope_environment()},
        limits=limits,
        stdin=stdin,
        objection=too_large,
    )


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


def _unfit(command: Sequence[str], place: Path, path: str) -> str | None:
    """Return why this command cannot be started; None if it can."""
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


def _error(ended: Ended, limits: Limits, reason: str | None) -> str | None:
    if ended.timed_out:
        return f"its time limit of {limits.seconds:g} s was over"
    if reason:
        return reason
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


def _too_large(space: OpenWorkspace, most: int) -> str | None:
    """Say that the workspace holds more bytes than `most`, if it does; 0 is no limit.

    If the workspace cannot be measured now, the next call tells.
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

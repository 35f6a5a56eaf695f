"""Running programs in workspaces: held, boxed if possible, and noted whatever becomes of them."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.foundation.errors import Invalid, Unavailable
from bsd.workspaces import record
from bsd.workspaces.isolation import BUBBLEWRAP, PATH, box, why_not_isolated
from bsd.workspaces.locks import lock
from bsd.workspaces.metadata import FILE_NAME, SessionMetadata
from bsd.workspaces.place import (
    DEFAULT_ROOT,
    Workspace,
    open_root,
    system_errors,
    workspace_in_use,
)
from bsd.workspaces.process import Ended, Limits, run_process


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How a run ended. `error` is None if the program succeeded, else one sentence.

    `isolated` says whether bubblewrap held it; if not, `isolation` says why. Output is the first
    bytes that the limits allow, as text where it is UTF-8.
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
    error: str | None
    metadata: SessionMetadata | None  # as noted afterwards; None for a workspace without any

    @property
    def succeeded(self) -> bool:
        return self.error is None

    def as_json(self) -> dict[str, Any]:
        document = {name: getattr(self, name) for name in self.__slots__ if name != "metadata"}
        document["argv"] = list(self.argv)
        document["metadata"] = self.metadata.as_json() if self.metadata else None
        return document


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
    (raises Unavailable), False goes without. An isolated program has no network, writes nothing
    but its workspace, and reads only that, the system's programs and `readable`. Prunings leave
    the workspace alone meanwhile. Raises NotFound, Invalid, Busy.
    """
    command = _checked(argv)
    _check_environment(env or {})
    reason = "not asked for" if isolate is False else why_not_isolated()
    if isolate and reason:
        raise Unavailable(f"programs cannot be isolated: {reason}", hint="apt install bubblewrap")
    wish = _Wish(command, limits or Limits(), env or {}, stdin, tuple(readable), reason)
    with open_root(Path(workspace_root)) as root, workspace_in_use(root, session_id) as space:
        with system_errors(f"preparing workspace {session_id}"):
            record.begin(space)
        ended: Ended | None = None
        error: str | None = "it was broken off"
        try:
            ended, error = _run(space, wish)
        finally:
            with system_errors(f"noting the use of workspace {session_id}"):
                noted = record.end(space, lambda old: old.executed(clock(), error), clock())
    return _result(session_id, wish, ended, error, noted)


@contextmanager
def _inherited(space: Workspace, *, isolated: bool) -> Iterator[tuple[int, ...]]:
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


def _run(space: Workspace, wish: _Wish) -> tuple[Ended | None, str | None]:
    """Run it to its end: how it ended, and what went wrong."""
    environment = {"PATH": PATH, "HOME": str(space.path), "LANG": "C.UTF-8", **wish.env}
    if problem := _unfit(wish.command, space.path, environment["PATH"]):
        return None, problem
    argv: Sequence[str] = wish.command
    if wish.not_isolated is None:
        argv = _boxed(space, wish.command, environment, wish.readable)
    with (
        system_errors(f"starting {wish.command[0]!r}"),
        _inherited(space, isolated=wish.not_isolated is None) as held,
    ):
        ended = run_process(
            argv,
            cwd=space.path,
            environment=environment,
            limits=wish.limits,
            stdin=wish.stdin,
            held=held,
        )
    return ended, _error(ended, wish.limits)


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
        if not file.is_file():
            return f"there is no program {name!r}"
        return None if os.access(file, os.X_OK) else f"{name!r} is not executable"
    return None if shutil.which(name, path=path) else f"there is no program {name!r}"


def _boxed(
    space: Workspace,
    command: tuple[str, ...],
    environment: Mapping[str, str],
    readable: Sequence[Path],
) -> list[str]:
    protected = []
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(FILE_NAME, dir_fd=space.fd, follow_symlinks=False).st_mode):
            protected.append(FILE_NAME)
    return [*box(space.path, environment, protected=protected, readable=readable), *command]


def _error(ended: Ended, limits: Limits) -> str | None:
    if ended.timed_out:
        return f"its time limit of {limits.seconds:g} s was over"
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
    ended: Ended | None,
    error: str | None,
    metadata: SessionMetadata | None,
) -> ExecutionResult:
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
        error=error,
        metadata=metadata,
    )

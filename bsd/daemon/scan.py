"""The scan: find the sessions that changed since the last scan, by stat alone."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from bsd.core.errors import BsdError
from bsd.core.exclude import Exclusions
from bsd.core.layout import Layout, SessionName, plain_directories
from bsd.daemon.directories import Trouble, WatchProblem, find_directories, no_access
from bsd.transcripts.agents.database import SessionDatabase
from bsd.transcripts.agents.opening import database_with
from bsd.transcripts.agents.program import ENDING, SYNC_COPY, is_sync_copy
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.change import Written, packed


class Scan:
    """The last known state of every session file, compared with its current stat.

    A change is reported once. The session then counts as changed until `note` records the state in
    which bsd left it. `forget` makes the next walk report it again, changed or not. Only one thread
    may call `step`; all other methods may be called from any thread.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.Lock()
        # agent → file name → state (`Written.packed`), compact because it exists for every session
        self._known: dict[str, dict[str, bytes]] = {}
        self._reported: set[SessionName] = set()  # reported sessions without a `note` since then
        self._exclusions: Exclusions | None = None  # exclusions of the last walk
        self._found: list[WatchProblem] = []  # problems of the current walk
        self.problems: tuple[WatchProblem, ...] = ()  # problems of the last complete walk
        self.left = 0  # new sessions that the last walk has left for another walk

    def note(self, name: SessionName, seen: Written) -> None:
        """Record the state in which bsd left a session, so that it does not count as changed."""
        with self._lock:
            self._known.setdefault(name.agent, {})[f"{name.session}{ENDING}"] = seen.packed()
            self._reported.discard(name)

    def forget(self, name: SessionName) -> None:
        """Report a session at the next walk, even if it does not change until then."""
        with self._lock:
            self._known.get(name.agent, {}).pop(f"{name.session}{ENDING}", None)
            self._reported.discard(name)

    def changed(self, name: SessionName) -> bool:
        """Return True if a session differs from the state at its last `note`."""
        try:
            if self._layout.excluded(name):
                return False
            directory = self._directory(name.agent)
        except BsdError:  # a link out of the root, which bsd does not follow
            return False
        path = directory / f"{name.session}{ENDING}"
        return self._compare(name.agent, path) is not None or name in self._reported

    def _directory(self, agent: str) -> Path:
        """Return the directory of an agent's sessions; raises as `Layout.sessions_dir`.

        Each system call lets other threads run first, so this method avoids system calls: if no
        component below the root is a link, the path cannot lead out of the root.
        """
        agents = self._layout.agents
        if self._layout.source_of(agent) is None and not agents.is_symlink():
            plain = plain_directories(agents, agent)
            if plain is not None:
                return plain[1]
        return self._layout.sessions_dir(agent)

    def __len__(self) -> int:
        return sum(map(len, self._known.values())) + self.left

    def step(
        self, can_wait: Callable[[os.stat_result], bool] = lambda _: False
    ) -> Iterator[tuple[SessionName, Written | None]]:
        """Walk over all sessions; yield new, changed, and deleted (None) ones.

        A new session for which `can_wait` returns True is left for another walk.
        """
        left = 0
        found = find_directories(self._layout)
        problems = found.problems
        self._forget_excluded(found.exclusions)
        self._found = problems
        present = set(found.unreadable)
        for agent, directory in found.agents():
            present.add(agent)
            place = directory or self._place(agent)
            try:
                with found.files(agent, directory) as files:
                    left += yield from self._walk(agent, place, files, can_wait)
            except FileNotFoundError:
                present.discard(agent)
            except BsdError:  # it has just become a link
                continue
            except OSError as error:  # its sessions count as unchanged
                problems.append(no_access(place, error))
        if found.complete:
            with self._lock:
                missing = self._known.keys() - present
            for agent in missing:
                yield from self._vanish(agent, self._place(agent), set())
        self.problems, self.left = tuple(problems), left

    def _forget_excluded(self, exclusions: Exclusions | None) -> None:
        """Forget excluded sessions: a session that is included again counts as new."""
        if exclusions is self._exclusions:
            return
        self._exclusions = exclusions
        if not exclusions:
            return
        with self._lock:
            for agent, files in list(self._known.items()):
                sessions = {file: file.removesuffix(ENDING) for file in files}
                gone = {file for file, name in sessions.items() if exclusions.session(agent, name)}
                for file in gone:
                    del files[file]
                if not files:
                    del self._known[agent]
            self._reported -= {
                name for name in self._reported if exclusions.session(name.agent, name.session)
            }

    def _place(self, agent: str) -> Path:
        """Return the former directory of the sessions of a deleted agent."""
        with suppress(BsdError):
            return self._layout.sessions_dir(agent)
        return self._layout.agents / agent / "sessions"

    def _walk(  # noqa: C901
        self,
        agent: str,
        directory: Path,
        files: Iterable[os.DirEntry[str]],
        can_wait: Callable[[os.stat_result], bool],
    ) -> Generator[tuple[SessionName, Written | None], None, int]:
        """Walk over an agent's sessions; return how many were left for another walk."""
        with self._lock:
            known = self._known.setdefault(agent, {})
        present, left = set(), 0
        copies: list[str] = []  # conflict files of a sync program
        program = program_of(self._layout, agent)
        for entry in files:
            # Most files are known, and the name of a known file need not be checked again.
            last = known.get(entry.name)
            if last is None and not program.is_session_file(entry.name):
                if is_sync_copy(entry.name):
                    copies.append(entry.path)
                continue
            try:
                now = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            present.add(entry.name)
            if last == packed(now):
                continue
            if last is None and can_wait(now):
                left += 1
                continue
            change = self._compare(agent, directory / entry.name)
            if change is not None:
                yield change
        if (database := program.database()) is not None:
            for session, state in _rows_of(database, self._exclusions, agent):
                file = f"{session}{ENDING}"
                present.add(file)
                if known.get(file) != packed(state):
                    yield from filter(None, [self._compare(agent, directory / file)])
        yield from self._vanish(agent, directory, present)
        if copies:
            self._found.append(_sync_copies(copies))
        return left

    def _vanish(
        self, agent: str, directory: Path, present: set[str]
    ) -> Iterator[tuple[SessionName, None]]:
        with self._lock:
            missing = self._known.get(agent, {}).keys() - present
        for file in sorted(missing):
            change = self._compare(agent, directory / file)
            if change is not None and change[1] is None:
                yield change[0], None
        with self._lock:
            if not self._known.get(agent, True):
                del self._known[agent]

    def _compare(self, agent: str, path: Path) -> tuple[SessionName, Written | None] | None:
        """Compare a session file with its known state; return the change, or None.

        The lock is needed for the whole comparison: `note` may have run since the caller's stat.
        """
        name = SessionName(agent, path.name.removesuffix(ENDING))
        with self._lock:
            known = self._known.setdefault(agent, {})
            try:
                found = self._look(name, path)
            except (FileNotFoundError, NotADirectoryError):
                self._reported.discard(name)
                return (name, None) if known.pop(path.name, None) else None
            except OSError:
                return None
            seen = Written.of(found)
            state = seen.packed()
            if not stat.S_ISREG(found.st_mode) or known.get(path.name) == state:
                return None
            known[path.name] = state
            self._reported.add(name)
            return name, seen

    def _look(self, name: SessionName, path: Path) -> os.stat_result:
        """Return the state of a session in its program's database or its agent's directory.

        Else, return the stat of the file where its program moved it.
        """
        with suppress(BsdError):
            if (database := database_with(self._layout, name)) is not None:
                return database.find(name.session) or os.lstat(path)
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            with suppress(BsdError):
                if (elsewhere := self._layout.transcript(name)) != path:
                    return os.lstat(elsewhere)
            raise


def _sync_copies(paths: list[str]) -> WatchProblem:
    first, *others = sorted(paths)
    more = f", and {len(others)} more" if others else ""
    return WatchProblem(
        Trouble.SYNC_COPY,
        f"{first}{more}: left alone, {SYNC_COPY}",
        "compare it with the session beside it, and move the file that you do not need away",
    )


def sessions_by_stat(
    layout: Layout, newer_than: float | None = None
) -> Iterator[tuple[SessionName, Written]]:
    """Yield all sessions with their current state.

    Sessions that cannot be read are left out.

    Args:
        newer_than: only sessions that were written to after this moment (epoch seconds).
    """
    found = find_directories(layout)
    for agent, directory in found.agents():
        with suppress(OSError, BsdError), found.files(agent, directory) as files:
            yield from _of_agent(layout, agent, files, newer_than)
        if (database := found.databases.get(agent)) is not None:
            with suppress(OSError, BsdError):
                for session, stat_ in _rows_of(database, found.exclusions, agent):
                    if newer_than is None or stat_.st_mtime_ns / 1e9 > newer_than:
                        yield SessionName(agent, session), Written.of(stat_)


def _rows_of(
    database: SessionDatabase, exclusions: Exclusions | None, agent: str
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the sessions in an agent's database, if it can be read, without excluded ones."""
    if database.problem is not None:
        return
    for session, found in database.sessions().items():
        if not (exclusions and exclusions.session(agent, session)):
            yield session, found


def _of_agent(
    layout: Layout, agent: str, files: Iterable[os.DirEntry[str]], newer_than: float | None
) -> Iterator[tuple[SessionName, Written]]:
    program = program_of(layout, agent)
    for file in files:
        with suppress(FileNotFoundError):
            found = file.stat(follow_symlinks=False)
            # Almost all files are older, and their names need not be checked.
            if newer_than is not None and found.st_mtime_ns / 1e9 <= newer_than:
                continue
            if stat.S_ISREG(found.st_mode) and program.is_session_file(file.name):
                yield SessionName(agent, file.name.removesuffix(ENDING)), Written.of(found)

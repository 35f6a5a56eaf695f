"""What fills the directory of Codex: threads, and the databases beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bsd.transcripts.agents.program import FilesOfProgram

_NOT_AT_WORK = "while no Codex is at work"
_THREADS = (
    "`bsd archive keep` keeps a copy of whole threads, and `bsd archive list` shows it;"
    " then `codex delete` removes threads"
)
# By the beginning of the file's name: the content, and the advice.
_DATABASES = {
    "logs": ("log", f"Codex begins a new one if you delete it {_NOT_AT_WORK}"),
    "thread_history": (
        "threads as Codex shows them",
        f"Codex makes it again out of the threads if you delete it {_NOT_AT_WORK}",
    ),
    "state": ("list of threads", None),  # with names that Codex cannot make again
}


def directory_files(sessions: Path) -> Iterator[FilesOfProgram]:
    """Yield the threads of both directories, and each database with its auxiliary files."""
    home = sessions.parent
    yield FilesOfProgram("threads (sessions)", (sessions,), _THREADS)
    archived = home / "archived_sessions"
    yield FilesOfProgram("archived threads (archived_sessions)", (archived,), _THREADS)
    for name, (what, advice) in _DATABASES.items():
        for database in sorted(home.glob(f"{name}_[0-9]*.sqlite")):
            paths = (database, *sorted(home.glob(f"{database.name}-*")))
            yield FilesOfProgram(f"{what} ({database.name})", paths, advice)

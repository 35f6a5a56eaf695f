"""The sessions that meet the project and file conditions of a search filter.

A search in the index uses only the index (`wanted_by_index`). A search without the index also
checks sessions that the index does not know (`WantedSessions`).
"""

from __future__ import annotations

import os
from functools import cached_property

from bsd.core.layout import Layout, SessionName
from bsd.maintenance.titles import Titles
from bsd.store.search import SearchIndex, ask
from bsd.store.search_filter import SearchFilter
from bsd.transcripts.agents.touched import PathPattern


def wanted_by_index(
    index: SearchIndex, agent: str | None, wanted: SearchFilter
) -> set[SessionName] | None:
    """Return the sessions of this project whose calls name this file; None: all sessions."""
    names: set[str] | None = None
    if wanted.project is not None:
        is_of = _ProjectName(wanted.project).has
        names = {
            name
            for name, known in index.titles(agent).items()
            if is_of(SessionName.parse(name), (known.directory or b"").decode(errors="replace"))
        }
    if wanted.file is not None:
        found = {each.session for each in index.files_named(PathPattern(wanted.file), agent)}
        names = found if names is None else names & found
    return None if names is None else {SessionName.parse(name) for name in names}


class WantedSessions:
    """The same conditions for all sessions, in the index or not.

    The files that calls name are known only from the index, so the file condition covers only what
    the index has read.
    """

    def __init__(self, layout: Layout, agent: str | None, wanted: SearchFilter) -> None:
        self._layout, self._agent = layout, agent
        self._project = None if wanted.project is None else _ProjectName(wanted.project)
        self._with_file: set[str] | None = None
        if wanted.file is not None:
            pattern, nothing = PathPattern(wanted.file), set[str]()

            def question(index: SearchIndex) -> set[str]:
                return {each.session for each in index.files_named(pattern, agent)}

            self._with_file = ask(layout.search_db, question, nothing)

    def has(self, name: SessionName, stat: os.stat_result) -> bool:
        """Return True if an existing session is wanted; `stat`: the stat of its file."""
        if self._with_file is not None and str(name) not in self._with_file:
            return False
        return self._project is None or self._project.has(
            name, self._titles.of(name, stat).directory
        )

    def has_gone(self, name: SessionName, directory: str | None) -> bool:
        """Return True if a deleted session is wanted; `directory`: where it began."""
        if self._with_file is not None and str(name) not in self._with_file:
            return False
        return self._project is None or self._project.has(name, directory)

    @cached_property
    def _titles(self) -> Titles:
        return Titles(self._layout, self._agent)


class _ProjectName:
    """A project as a user names it: by an agent, or by the end of its directory's path."""

    def __init__(self, text: str) -> None:
        self._agent = text
        self._pattern = PathPattern(text)

    def has(self, name: SessionName, directory: str | None) -> bool:
        """Return True if a session that began in `directory` belongs to the project."""
        return name.agent == self._agent or bool(directory and self._pattern.matches(directory))

"""Which sessions somebody looks for: by words in their names and titles, or in their text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from bsd.care.search import models, sessions_with
from bsd.foundation.errors import BsdError
from bsd.foundation.layout import Layout, SessionName
from bsd.store.search_query import terms_of

# Words that are in no title may be looked for in the text in so many combinations.
_MOST_QUESTIONS = 8


class Sought:
    """What somebody looks for; a word that no name holds is looked for in the text."""

    def __init__(self, layout: Layout, words: str | None, agent: str | None) -> None:
        self.terms = terms_of((words or "").casefold())
        self._layout = layout
        self._agent = agent
        self._found: dict[tuple[str, ...], set[SessionName]] = {}
        self._models: dict[str, str] = {}
        self.problem: str | None = None
        if self.terms:
            with self._noting_trouble():
                self._models = models(layout, agent)

    def are_in(self, name: SessionName, called: Iterable[str | None]) -> bool:
        """Whether each of them is in the session, or in its name, or in how it is `called`."""
        if not self.terms:
            return True
        said = " ".join(filter(None, called))
        known = f"{name} {said} {self._models.get(str(name), '')}".casefold()
        left = tuple(term for term in self.terms if term.strip('"') not in known)
        return not left or name in self._sessions_with(left)

    def _sessions_with(self, terms: tuple[str, ...]) -> set[SessionName]:
        if terms not in self._found and len(self._found) >= _MOST_QUESTIONS:
            terms = tuple(self.terms)
        if terms not in self._found:
            self._found[terms] = set()
            with self._noting_trouble():
                self._found[terms] = sessions_with(self._layout, " ".join(terms), self._agent)
        return self._found[terms]

    @contextmanager
    def _noting_trouble(self) -> Iterator[None]:
        # What is found by its name is better than no answer.
        try:
            yield
        except BsdError as trouble:
            self.problem = trouble.message

"""Finds keys and passwords in sessions, stores and archives, with the places of each.

`secret_patterns` recognises secrets, `stored_lines` reads the lines. A secret is named by the
beginning of its hash. Its text leaves this module only for the caller that redacts it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from bsd.core.errors import BsdError
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.scan import ScanPosition
from bsd.maintenance.secret_patterns import Secret, secrets_in
from bsd.maintenance.stored_lines import StoredLineReader, StoredLines, TextPlace
from bsd.planning.redact_text import SecretText
from bsd.transcripts.agents.entry import entry_id
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.reader import parse_entry
from bsd.transcripts.spans import format_path

MOST_SECRETS = 2000  # limit of the secrets that a search collects
MOST_PLACES = 200  # limit of the places listed per secret


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """An entry that contains a secret."""

    session: SessionName
    entry_id: str | None
    index: int  # 0-based line number; for a stored line, its number when it was extracted
    where: TextPlace
    keys: tuple[str, ...]  # paths of the values; empty if it is not in a text of the entry


@dataclass(slots=True)
class FoundSecret:
    """A secret and the entries that contain it; `more`: number of entries that are not listed."""

    secret: Secret
    places: list[SecretPlace] = field(default_factory=list)
    more: int = 0


@dataclass(slots=True)
class SecretSearch:
    """One search for secrets in all text, or in some sessions.

    `progress`, `stopping` and `failed` are those of `StoredLineReader`.
    """

    layout: Layout
    agent: str | None = None
    only: Collection[SessionName] = ()
    progress: Callable[[int, int], object] = lambda _done, _of: None
    stopping: Callable[[], bool] = lambda: False
    failed: Callable[[SessionName, BsdError], object] = lambda _name, _why: None
    found: dict[str, FoundSecret] = field(init=False, default_factory=dict)
    unlisted: int = field(init=False, default=0)  # places of secrets beyond `MOST_SECRETS`

    def run(self, position: ScanPosition | None = None) -> ScanPosition:
        """Search from a position; return the position reached, as `StoredLineReader.run` does."""
        reader = StoredLineReader(
            self.layout, self.agent, self.only, self.progress, self.stopping, self.failed
        )
        return reader.run(self.look, position)

    def look(self, lines: StoredLines) -> None:
        """Search lines from the reader."""
        for index, line in enumerate(lines.data.split(b"\n"), lines.index):
            for secret in secrets_in(line):
                self._note(lines, index, line, secret)

    def _note(self, lines: StoredLines, index: int, line: bytes, secret: Secret) -> None:
        known = self.found.get(secret.text)
        if known is None:
            if len(self.found) >= MOST_SECRETS:
                self.unlisted += 1
                return
            known = self.found[secret.text] = FoundSecret(secret)
        if lines.place is TextPlace.COPIED and any(
            place.session == lines.session for place in known.places
        ):
            return  # already found in this session
        if len(known.places) >= MOST_PLACES:
            known.more += 1
            return
        entry = parse_entry(line) or {}
        paths = [path for path, _ in SecretText(secret.text, "").texts(entry)]
        known.places.append(
            SecretPlace(
                lines.session,
                lines.entry_id or _id_of(entry, lines.format),
                index,
                lines.place,
                tuple(map(format_path, paths)),
            )
        )


def _id_of(entry: dict[str, Any], fmt: TranscriptFormat | None) -> str | None:
    return fmt.info(entry).id if fmt and entry else entry_id(entry)

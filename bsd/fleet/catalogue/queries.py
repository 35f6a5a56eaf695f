"""Questions to the catalogue: search, sessions, hosts. Each reads one page, by key."""

from __future__ import annotations

from bsd.core.fleet_settings import FleetSettings
from bsd.fleet.catalogue.answers import FleetHits, FleetHost, FleetSessions


class Catalogue:
    """A catalogue that answers questions; for several threads. Call `close` after use.

    All methods raise TemporaryFailure (not reachable, too slow), Forbidden (password, role),
    ConfigError (no catalogue, or one of another version), Unavailable.
    """

    def search(  # noqa: PLR0913 - filters
        self,
        words: str,
        *,
        host: str | None = None,
        agent: str | None = None,
        role: str | None = None,
        tool: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> FleetHits:
        """Return the entries that contain all words, the newest first.

        Args:
            words: words, "phrases", beginnings*, and -words that an entry must not contain.
            host: name of a host, or `name~id`.
            agent: only sessions of this agent.
            role: only entries of this role.
            tool: only calls and results of this tool.
            since: epoch seconds; only entries from this time on.
            until: epoch seconds; only entries before this time.
            limit: most entries of a page, 1 to 500.
            after: `next` of the page before.

        Raises:
            Invalid: there is no word, `after` is none of a page, or the catalogue has no words.
        """
        raise NotImplementedError

    def sessions(
        self,
        *,
        host: str | None = None,
        agent: str | None = None,
        directory: str | None = None,
        untouched_seconds: float | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> FleetSessions:
        """Return sessions, the last changed first.

        Args:
            host: as for `search`.
            agent: only sessions of this agent.
            directory: only sessions whose first working directory is this one, or below it.
            untouched_seconds: only sessions that have not changed for so long.
            limit: most sessions of a page, 1 to 500.
            after: `next` of the page before.

        Raises:
            Invalid: `after` is none of a page.
        """
        raise NotImplementedError

    def hosts(self) -> tuple[FleetHost, ...]:
        """Return all hosts, by name. Hosts of one name are `name` and `name~id`."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError


def open_catalogue(settings: FleetSettings) -> Catalogue:
    """Open the catalogue that the settings name; it connects with the first question.

    Raises:
        ConfigError: the settings name none, or the library for PostgreSQL is missing.
    """
    raise NotImplementedError

"""What the doors may ask of the running daemon; every answer is ready for JSON.

Times are ISO 8601 (UTC), sizes bytes. Nothing here reads a transcript, and no answer takes longer
for there being many sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bsd.daemon.events import Subscription


class Service(Protocol):
    """The daemon as its doors see it. Every method may be called from any thread."""

    def health(self) -> dict[str, Any]:
        """Whether all is well.

        {status: "ok" | "degraded" | "starting" | "stopping", version, pid, uptime_seconds,
        late: [loop], problems: [text]}; it is degraded if there is a problem, a source that cannot
        be served among them, or a loop is late.
        """
        ...

    def status(self) -> dict[str, Any]:
        """Everything at a glance.

        {state, pid, version, root, started_at, uptime_seconds, enabled, auto_refresh_ms,
        roots: [{path, level: "strong" | "weak" | "none", filesystem, why}],
        watcher: {directories, watched, scan_only, problems: [{kind, text, remedy}]},
        queue: {waiting, ready, working, parked: [{session, error, failures}]},
        workers: [{name, session | null, since | null}],
        totals: {sessions, commits, give_ups: {reason: n}, values, entries, bytes_saved,
        tokens_saved, bytes_written, busy, failed, helpers_replaced, workers_replaced, crashes},
        left_alone: {count, reasons: {text: n}},
        sessions: [the `bsd extract --json` fields of a session's last result, and `at`],
        sources: [{name, kind, path, served_by | null, left_alone: why | null,
        problem: {text, remedy} | null}],
        orphans: {count, bytes}, clock: why it is not believed | null,
        disk: {store, history, trash, in_flight: {files, bytes, due_at | null}, orphans, databases,
        others, log, total, saved, net}, config: {path, problem | null},
        search: as `search_state`,
        retention: {keep, next_run | null, files, bytes, next_expiry | null, held | null,
        trash: {keep, sessions, bytes, next_expiry | null, held | null}}}

        `disk` is what bsd takes there, and by how much sessions became shorter by the audit log.
        Totals count since the start, `sessions` are those there are now. `retention` tells what
        its next run will delete, and when the oldest file that is kept until then expires; the same
        of the trash. `held` says why nothing is deleted: the clock is not believed.
        """
        ...

    def status_json(self) -> bytes:
        """The same as JSON: quicker than to make it of `status`."""
        ...

    def cleaned(self) -> None:
        """Tell that something was deleted for good: what goes next is to be worked out anew."""
        ...

    def search_state(self) -> dict[str, Any]:
        """How far the search index follows the sessions.

        {complete, waiting, problem | null}: whether all were read, and how many are to be.
        """
        ...

    def jobs(self) -> list[dict[str, Any]]:
        """Scheduled jobs, by name.

        {name, schedule | null, enabled, running, last_run | null, last_result | null,
        next_run | null}; last_result is {ok, error | null, seconds}.
        """
        ...

    def run_job(self, name: str) -> dict[str, Any]:
        """Run a job now, on the calling thread, and return it as `jobs` does.

        Raises NotFound, and Conflict if it is running.
        """
        ...

    def subscribe(self, wake: Callable[[], None], /) -> Subscription:
        """What happens from now on (`Events.subscribe`); close it when nobody listens any more."""
        ...

    def beat(self, loop: str, within: float = 60.0) -> None:
        """Tell that a loop of a door is alive and will beat again within so many seconds."""
        ...

    def end_beat(self, loop: str) -> None:
        """Tell that such a loop has ended as it should."""
        ...

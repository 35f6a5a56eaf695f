"""The answers as OpenAPI describes them. The daemon makes them; nothing is checked on the way."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bsd.doors.models import Document


class FieldProblem(Document):
    field: str
    message: str


class Error(Document):
    """Every error, whatever its status."""

    error: str
    hint: str | None = Field(None, description="What to try")
    errors: list[FieldProblem] | None = Field(None, description="Every bad field of the input")


class Health(Document):
    """Whether all is well; needs no API key."""

    status: Literal["ok", "degraded", "starting", "stopping"]
    version: str
    pid: int
    uptime_seconds: float
    late: list[str] = Field(description="Loops that do not answer")
    problems: list[str]


class Status(Document):
    """Everything at a glance. Sizes are bytes, times ISO 8601; totals count since the start."""

    state: str
    pid: int
    version: str
    root: str
    started_at: str
    uptime_seconds: float
    enabled: bool
    readonly: bool
    auto_refresh_ms: int
    roots: list[dict[str, Any]] = Field(
        description="path, level (strong, weak, none), filesystem, why"
    )
    watcher: dict[str, Any] = Field(description="directories, watched, scan_only, problems")
    queue: dict[str, Any] = Field(
        description="debouncing, waiting, ready, working, gathering, refused, retried, parked"
    )
    workers: list[dict[str, Any]] = Field(description="name, session, since")
    totals: dict[str, Any]
    left_alone: dict[str, Any] = Field(description="count, reasons")
    sessions: list[dict[str, Any]] = Field(description="The last result of each session, and at")
    orphans: dict[str, Any] = Field(description="count, bytes")
    sources: list[dict[str, Any]] = Field(
        description="name, kind, path, served_by, left_alone, problem"
    )
    clock: str | None = Field(description="Why the clock is not believed, and nothing deleted")
    disk: dict[str, Any] = Field(
        description="What bsd takes: store, history, trash, in_flight, orphans, databases, others,"
        " log, total; saved (in sessions), net"
    )
    search: dict[str, Any] = Field(description="complete, waiting, problem: the index of words")
    config: dict[str, Any] = Field(description="path, problem")
    retention: dict[str, Any] = Field(
        description="keep, next_run, files, bytes (of the next run), next_expiry, held, trash"
    )


class LastResult(Document):
    ok: bool
    error: str | None
    seconds: float


class Job(Document):
    """A scheduled job; a schedule of null: it runs only when asked."""

    name: str
    schedule: str | None
    enabled: bool
    running: bool
    last_run: str | None
    last_result: LastResult | None
    next_run: str | None


class Jobs(Document):
    jobs: list[Job]


class SavedInHour(Document):
    at: str = Field(description="When the hour began")
    saved: int = Field(description="Bytes by which sessions became shorter")
    given_back: int = Field(description="Bytes by which they became longer: restored, undone")


class Savings(Document):
    """Bytes saved over time; hours of which nothing is to be told are left out."""

    step_seconds: int
    points: list[SavedInHour]


class EntryDocument(Document):
    """A whole entry, numbers as they are spelled, for somebody to edit."""

    entry_id: str | None
    index: int
    seen: str = Field(description="Hash of the line; an edit may say what it was made on")
    entry: dict[str, Any]

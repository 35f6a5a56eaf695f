"""How the daemon is, at a glance: the answers of `/api/health` and `/api/status`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

from starlette.responses import Response

from bsd.doors.http.answer import Answer


class Glanced(Protocol):
    """What is asked of the daemon; `bsd.daemon.status` describes the answers."""

    def health(self) -> dict[str, Any]: ...

    def status_json(self) -> bytes: ...


def health(daemon: Glanced) -> Response:
    """Whether all is well. 503 before the start is complete and while it stops."""
    told = daemon.health()
    ready = told["status"] in {"ok", "degraded"}
    return Answer(told, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)


def status(daemon: Glanced) -> Response:
    """Everything."""
    return Response(daemon.status_json(), media_type=Answer.media_type)

"""How the daemon is, and what it does: health, status, jobs, what was saved, its settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from bsd.care.disk_use import SavedByHour, Savings
from bsd.daemon.status import DaemonStatus, Health, Job, Jobs, Service
from bsd.doors.http import early
from bsd.doors.http.answer import JsonAnswer, changing, in_thread
from bsd.doors.http.route import ApiRoute, actor_of, json_object
from bsd.foundation.definition import Body
from bsd.foundation.pruning_config import ConfigService
from bsd.foundation.pruning_fields import SETTINGS

if TYPE_CHECKING:
    from bsd.doors.http.metrics import MetricsPage

_PAGE = {"content": {"text/plain": {"schema": {"type": "string"}}}}


def routes(daemon: Service, audit_file: Path) -> list[ApiRoute]:
    saved = SavedByHour(audit_file)

    @cache
    def page() -> MetricsPage:
        from bsd.doors.http.metrics import MetricsPage  # noqa: PLC0415 - see there

        return MetricsPage(daemon.status, daemon.jobs, daemon.health)

    def render() -> Response:
        return Response(page().render(), headers={"content-type": page().content_type})

    async def health(_: Request) -> Response:
        """Whether all is well. 503 before the start is complete and while it stops."""
        return await in_thread(early.health, daemon)

    async def status(_: Request) -> Response:
        """Everything at a glance."""
        return await in_thread(early.status, daemon)

    async def metrics(_: Request) -> Response:
        """The same in numbers, for Prometheus."""
        return await in_thread(render)

    async def jobs(_: Request) -> Response:
        """All jobs, by name, with their last and next runs."""
        return JsonAnswer({"jobs": await in_thread(daemon.jobs)})

    async def run(request: Request) -> Response:
        """Run a job now and wait for its end; whether it succeeded is in `last_result`."""
        return JsonAnswer(await changing(daemon.run_job, request.path_params["name"]))

    async def savings(_: Request) -> Response:
        """Bytes by which sessions became shorter, and longer again, by hour."""
        return JsonAnswer((await in_thread(saved.savings)).as_json())

    return [
        ApiRoute.of("GET /api/health", health, "state", Health, statuses={503: "Not ready"}),
        ApiRoute.of("GET /api/status", status, "state", DaemonStatus),
        ApiRoute.of("GET /api/metrics", metrics, "state", _PAGE),
        ApiRoute.of("GET /api/jobs", jobs, "jobs", Jobs),
        ApiRoute.of("POST /api/jobs/{name}/run", run, "jobs", Job),
        ApiRoute.of("GET /api/savings", savings, "state", Savings),
    ]


def config_routes(config: ConfigService, changed: Callable[[], None]) -> list[ApiRoute]:
    """The runtime settings; `changed` is called when some were."""

    async def show(_: Request) -> Response:
        """All runtime settings; needs no API key."""
        return JsonAnswer((await in_thread(lambda: config.current)).as_json())

    async def change(request: Request) -> Response:
        """Change some; they are in force when this answers. 400 names every bad field.

        `last_*` are ignored.
        """
        wanted = await json_object(request)
        new = await in_thread(config.update, wanted, actor=actor_of(request))
        changed()
        return JsonAnswer(new.as_json())

    some = Body(read=dict, settings=tuple(SETTINGS))
    return [
        ApiRoute.of("GET /api/config", show, "config", "RuntimeConfig"),
        ApiRoute.of("POST /api/config", change, "config", "RuntimeConfig", body=some),
    ]

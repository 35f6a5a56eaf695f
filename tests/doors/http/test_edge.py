"""How a request ends when the application does not end it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from bsd.doors.http.edge import Edge
from tests.logs import capture_logs

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/api/x", "headers": []}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def answer(*messages: Message) -> list[Message]:
    """What goes out if the application says this, and then fails."""
    sent: list[Message] = []

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        raise ZeroDivisionError

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Edge(failing)(SCOPE, receive, send))
    return sent


@pytest.mark.parametrize(
    "messages",
    [(), (START,), (START, {"type": "http.response.body", "body": b"half", "more_body": True})],
)
def test_half_an_answer_is_broken_off(messages: tuple[Message, ...]) -> None:
    """Whoever reads it must not take it for the whole."""
    with capture_logs() as logs, pytest.raises(ZeroDivisionError):
        answer(*messages)
    assert [one["event"] for one in logs] == ["A request has failed"]


def test_a_whole_answer_stays_one() -> None:
    with capture_logs() as logs:
        sent = answer(START, {"type": "http.response.body", "body": b"whole"})
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert [one["event"] for one in logs] == ["A request has failed"], "once"

"""A provider on loopback for Codex: it answers each prompt with a call, each result with a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from typing import Any

from tests.mcp.answers import goes_on

Json = dict[str, Any]

_COMMAND = "seq 1 900"  # the output that the model asks for: long, and the same on every machine
_RESULTS = ("function_call_output", "custom_tool_call_output")
_MOST_CALLS = 500  # in all tests of a module; a program that never stops asking gets no more calls


class Provider:
    """A provider, and the requests with their paths."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.calls: list[Json] = []  # calls that the model makes first, before its usual calls
        self.url = ""
        self._called: Json = {}  # the newest of `calls`
        self._numbers = count(1)
        self._lock = Lock()

    def answer(self, request: Json) -> list[Json]:
        """Return the items of one answer."""
        with self._lock:
            number = next(self._numbers)
            if number <= _MOST_CALLS:
                self.requests.append(request)
        last = (
            (request.get("input") or [{}])[-1] if number <= _MOST_CALLS else {"type": _RESULTS[0]}
        )
        tools = [tool.get("name") for tool in request.get("tools") or ()]
        if last.get("type") in _RESULTS and goes_on(json.dumps(last)):
            return [{**_call(number), **self._called}]  # as its answer says
        if last.get("type") not in _RESULTS and self.calls:
            self._called = self.calls.pop(0)
            return [{**_call(number), **self._called}]
        if last.get("type") not in _RESULTS and "exec_command" in tools:
            return [_reasoning(number), _call(number)]
        if last.get("type") not in _RESULTS and _in_code_mode(request):
            return [_reasoning(number), _script(number)]
        text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
        about = {"id": f"msg_{number}", "role": "assistant", "status": "completed"}
        return [{"type": "message", **about, "content": [text]}]


def _reasoning(number: int) -> Json:
    summary = [{"type": "summary_text", "text": f"I think of {number} " * 60}]
    return {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": summary,
        "encrypted_content": "gAAA" * 50,
    }


def _call(number: int) -> Json:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "exec_command",
        "arguments": json.dumps({"cmd": _COMMAND}),
        "status": "completed",
    }


def _in_code_mode(request: Json) -> bool:
    """Whether the model's tools are functions of a script, as for newer models."""
    return any(item.get("type") == "additional_tools" for item in request.get("input") or ())


def _script(number: int) -> Json:
    script = f"const done = await tools.exec_command({{cmd: {json.dumps(_COMMAND)}}});\n"
    script += "text(done.output ?? done);\n"
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{number}",
        "call_id": f"call_{number}",
        "name": "exec",
        "input": script,
        "status": "completed",
    }


@contextmanager
def provider() -> Iterator[Provider]:
    """Serve a provider until the end of the block."""
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send("application/json", b'{"object":"list","data":[],"models":[]}')

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            events = _events(made.answer(json.loads(body)), len(made.requests))
            sent = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
            self._send("text/event-stream", "".join(sent).encode())

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, name="provider")
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _events(items: list[Json], number: int) -> Iterator[Json]:
    response = {"id": f"resp_{number}"}
    yield {"type": "response.created", "response": response}
    for index, item in enumerate(items):
        for step in ("added", "done"):
            kind = f"response.output_item.{step}"
            yield {"type": kind, "output_index": index, "item": item}
    usage: Json = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
    usage["input_tokens_details"] = {"cached_tokens": 0}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    done = {**response, "output": items, "usage": usage}
    yield {"type": "response.completed", "response": done}

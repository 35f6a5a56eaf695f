"""A model behind the Gemini API on loopback: it makes the calls that a prompt names.

Gemini CLI is its client. As in `messages_api`, whose `asking` writes the prompts, the answer
depends only on the request: the calls of the newest prompt, one at a time, then a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from typing import Any

from tests.mcp.answers import goes_on

Json = dict[str, Any]

_CALL = re.compile(r"^CALL (\{.*\})$", re.MULTILINE)
_STREAMED = ":streamGenerateContent"


class GeminiModel:
    """The model of the server, with the requests of conversations that it received."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.url = ""
        self._numbers = count(1)
        self._lock = Lock()

    def contents(self) -> list[Json]:
        """Return the contents of the newest request of a conversation."""
        found: list[Json] = self.requests[-1]["contents"]
        return found

    def answer(self, request: Json) -> Json:
        """Return a response with the parts of the next message."""
        with self._lock:
            number = next(self._numbers)
            if request.get("tools"):
                self.requests.append(request)
        calls, made = _wanted(request.get("contents", []))
        parts: list[Json] = [{"text": f"That is all ({number})."}]
        if request.get("tools") and made < len(calls):
            call = {"name": calls[made]["name"], "args": calls[made]["input"]}
            parts = [{"functionCall": {"id": f"call_{number:08}", **call}}]
        candidate = {
            "content": {"role": "model", "parts": parts},
            "finishReason": "STOP",
            "index": 0,
        }
        usage = {"promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "made-up"}


def _wanted(contents: list[Json]) -> tuple[list[Json], int]:
    """Return the calls that the newest prompt names, and the number of final results after it."""
    made: set[str] = set()
    for content in reversed(contents):
        parts = content.get("parts", [])
        given = [part["functionResponse"] for part in parts if "functionResponse" in part]
        made |= {one["id"] for one in given if not goes_on(json.dumps(one))}
        text = "\n".join(part["text"] for part in parts if "text" in part)
        if content.get("role") == "user" and text:
            return [json.loads(found) for found in _CALL.findall(text)], len(made)
    return [], len(made)


@contextmanager
def serving_gemini() -> Iterator[GeminiModel]:
    """Serve a model until the end of the block."""
    model = GeminiModel()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if ":countTokens" in self.path:
                return self._send("application/json", b'{"totalTokens":1000}')
            answer = json.dumps(model.answer(request)).encode()
            if _STREAMED in self.path:
                return self._send("text/event-stream", b"data: %b\r\n\r\n" % answer)
            return self._send("application/json", answer)

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

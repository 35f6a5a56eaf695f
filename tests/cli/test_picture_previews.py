"""Pictures in lists of entries: named, and not spelled in base64."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Call, rest
from tests.http.api import over_socket, serving
from tests.http.fake_daemon import FakeDaemon
from tests.http.web.sample import message, text
from tests.openclaw_tree import add_session
from tests.pictures import PDF, PNG

_HEADER = b'{"type":"session","version":3,"id":"one"}\n'


def test_a_picture_is_named_before_and_after_it_left(bsd: Call, root: Path) -> None:
    result = {"toolCallId": "c", "toolName": "look"}
    lines = [
        message(
            "r1", "toolResult", {"type": "image", "data": PNG, "mimeType": "image/png"}, **result
        ),
        message("r2", "toolResult", text(PNG), **result),
        message("r3", "toolResult", text(PDF), **result),
        message("r4", "toolResult", text("A" * 1000), **result),
        *(message(f"m{at}", "user", text("Go on.")) for at in range(4)),
        message("last", "assistant", text("Done."), model="m", stopReason="stop"),
    ]
    add_session(root, "main/one", _HEADER + b"".join(lines))
    rest(root)

    def previews() -> dict[str, str]:
        found = bsd("--json", "show", "main/one").document["entries"]
        return {one["id"]: one["preview"] for one in found}

    named = {"r2": "[image/png, 900 B]", "r3": "[application/pdf, 58.6 KB]", "r4": "A" * 200}
    assert previews().items() >= named.items()
    assert PNG[:20] not in bsd("show", "main/one").out
    assert bsd("extract", "main/one", "--min-value-length", "40", "--keep-recent", "0").code == 0
    with serving(root, FakeDaemon()) as (_, settings):
        status, page = over_socket(settings.socket, "/api/sessions/main/one/entries?limit=100")
    assert status == 200
    away = {one["id"]: one["extracted_preview"] for one in page["entries"] if one["extracted"]}
    assert away == {"r1": "[image/png, 900 B]", **named}

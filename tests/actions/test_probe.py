from __future__ import annotations
import json, random
from dataclasses import replace
from bsd.actions.undo_since import *
from tests.actions.test_undo_since import *
from tests.session_files import *
from tests.openclaw_tree import set_idle
from bsd.actions.redact_secret import redact_secret
from bsd.actions.secrets import find_secrets
from tests.actions.test_redact_secret import TOKEN, said, keep, bring_back
from bsd.maintenance.verify import verify


def test_append_meanwhile(layout, daemon, caller, clock):
    path = write(layout, conversation(), ONE)
    whole = path.read_bytes()
    for kr in (6, 0):
        daemon.extract(ONE, overrides={"keep_recent": kr})
        clock.ahead += 600
    n = [0]
    extra = []

    def meanwhile():
        if n[0] < 3:
            n[0] += 1
            l = jsonl(entry(50 + n[0], "user", f"more {n[0]}"))
            extra.append(l)
            with path.open("ab") as f:
                f.write(l)

    clock.meanwhile = meanwhile
    a = undo_since(caller, "9h")
    print(a)
    print(path.read_bytes() == whole + b"".join(extra), n, len(extra))
    print(verify(layout).clean)
    clock.meanwhile = lambda: None
    clock.ahead += 600
    set_idle(path)
    print(undo_since(caller, "9h"))
    print(path.read_bytes() == whole + b"".join(extra), n)


def test_line_edit_by_program(layout, daemon, caller, clock):
    path = write(layout, conversation(), ONE)
    daemon.extract(ONE)
    clock.ahead += 600
    lines = path.read_bytes().splitlines(True)
    lines[2] = lines[2].replace(b'"isError": false', b'"isError": true')
    path.write_bytes(b"".join(lines))
    set_idle(path)
    a = undo_since(caller, "9h", dry_run=True)
    print(a)
    a = undo_since(caller, "9h")
    print(a)
    print(
        [
            (l["id"], l["message"]["content"][0]["text"][:30], l["message"].get("isError"))
            for l in map(json.loads, path.read_bytes().splitlines()[1:])
        ]
    )


def test_since_moments(layout, caller, paths):
    for s in (
        "tomorrow",
        "2099-01-01",
        "-1h",
        "0s",
        "1m",
        "99999999999d",
        "1e9h",
        "NaN",
        "2026-13-01",
        "0001-01-01",
        "9999-12-31T23:59:59",
        "24:00",
        "yesterday ",
        " today",
        "٣h",
        "2026-11-26T00:00:00+99:00",
        "14:30:00",
        "20261126",
        "W",
        "2026-W01",
        "\x00",
        "1h" * 5000,
    ):
        try:
            print(repr(s)[:30], undo_since(caller, s, dry_run=True).since)
        except Exception as e:
            print(repr(s)[:30], type(e).__name__, str(e)[:80])


def test_expired(layout, daemon, caller, clock):
    path = write(layout, conversation(), ONE)
    daemon.extract(ONE)
    clock.ahead += 600
    f = sorted(layout.store_dir(ONE).glob("0*"))[0]
    f.unlink()
    b = path.read_bytes()
    print(undo_since(caller, "9h", dry_run=True))
    print(undo_since(caller, "9h"))
    print(path.read_bytes() == b)


def test_live_snapshot(layout, daemon, caller, clock):
    e = conversation()
    e[2] = entry(1, "toolResult", f"token {TOKEN} {LONG}")
    path = write(layout, e)
    caller.extract(NAME)
    clock.ahead += 600
    set_idle(path)
    keep(layout, clock)
    performed.restore_all(caller, NAME)
    clock.ahead += 600
    set_idle(path)
    [s] = find_secrets(caller).secrets
    print(redact_secret(caller, s.hash))
    path.unlink()
    bring_back(layout, str(NAME), clock)
    print(path.read_text()[:800])
    print(verify(layout))

"""The home in which the commands of the documents run: `/home/me`, with sessions of four agents.

The documents use these names. Each may be shortened to its beginning, as everywhere in bsd.

=====================================================  =============================================
`main/4f2a7c10-…`, titled "The harbour master"         OpenClaw, the largest; its entry `1c556fa0`
                                                       is a long result of a tool
`main/9b31e5d2-…`                                      OpenClaw, short
`research/77aa01c4-…`                                  OpenClaw, bsd has extracted from it already
`claude-code:-home-me-shop/8463c716-…`                 Claude Code: reads `src/auth.py`
`claude-code:-home-me-shop/1a6e0003-…`                 Claude Code, 28 days old: deleted soon
`claude-code:-home-me-shop/5d0c2e91-…`                 Claude Code has deleted it; bsd has a copy
`claude-code:-home-me-secret/2b7f40aa-…`               Claude Code, with a key of GitHub in it
`codex:2025-09-24/rollout-2025-09-24T18-22-20-…`       Codex
`pi:--home-me-shop--/2025-12-01T10-00-00-000Z_…`       pi
=====================================================  =============================================

All are idle. `bsd.toml` names the directories of Claude Code, Codex and pi.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

from bsd.core.layout import SessionName
from bsd.core.settings import SourceSettings
from bsd.sample import session_lines
from bsd.transcripts.agents.programs import layout_of
from tests.daemon.running import configure
from tests.http.web.sample import recent
from tests.lived_in_home import add_claude
from tests.maintenance.keeping import extract, keep
from tests.openclaw_tree import add_session, set_idle
from tests.session_files import Clock
from tests.transcripts.agents.sources import CODEX, PI
from tests.transcripts.agents.sources.tree import Kind, raw

HARBOUR = "main/4f2a7c10-3b1e-4c55-9d0a-6f1e8b2c7a01"
ENTRY = "1c556fa0"  # of HARBOUR
SHORT = "main/9b31e5d2-0c47-4a83-b1d6-2e5f70c3948b"
RESEARCH = "research/77aa01c4-5e92-4d1b-8f36-c04b9a7de215"
SHOP = "claude-code:-home-me-shop"
LOGIN = f"{SHOP}/8463c716-a2ea-4c14-9efa-87158ebd9f20"
OLD = f"{SHOP}/1a6e0003-0000-4000-8000-000000000003"
DELETED = f"{SHOP}/5d0c2e91-77b3-4f0e-9a1c-3d86be52f047"
SECRET = "claude-code:-home-me-secret/2b7f40aa-1c9d-4e63-a5b8-90d2e7f31c64"
_TOKEN = "ghp_" + "7Gk2bQ9xZt4LmW8sVr1NcY5pHd3JfA6eUoXi"
_SOURCES = {"claude-code": ".claude/projects", "codex": CODEX.sessions, "pi": PI.sessions}
_LONG_RESULT = 4000  # bytes of a line


def make_home(home: Path) -> Path:
    """Fill an empty directory; returns the root of bsd in it."""
    root = home / ".openclaw"
    add_session(root, HARBOUR, _with_entry(recent(session_lines(turns=8, seed=1))))
    add_session(root, SHORT, recent(session_lines(turns=2, seed=2)))
    add_session(root, RESEARCH, recent(session_lines(turns=5, seed=3)))
    name = HARBOUR.partition("/")[2]
    listed = {"agent:main:harbour": {"sessionId": name, "displayName": "The harbour master"}}
    (root / "agents/main/sessions/sessions.json").write_text(json.dumps(listed))
    add_claude(home, LOGIN, "mend the login of the shop", ago=timedelta(hours=2))
    add_claude(home, OLD, "add a coupon to the basket", ago=timedelta(days=28))
    deleted = add_claude(home, DELETED, "Which ferry leaves?", ago=timedelta(days=29))
    add_claude(home, SECRET, f"the key is {_TOKEN}", file="")
    _add(home, CODEX)
    _add(home, PI)
    _write_settings(home)
    configure(root)
    sources = [SourceSettings(kind=kind, path=home / path) for kind, path in _SOURCES.items()]
    layout, clock = layout_of(root, sources), Clock()
    extract(layout, SessionName.parse(RESEARCH), clock)
    keep(layout, clock)
    deleted.unlink()
    return root


def _add(home: Path, kind: Kind) -> None:
    directory = "--home-me-shop--" if kind is PI else kind.directory
    path = home / kind.sessions / directory / f"{kind.session}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw(kind.lines()))
    set_idle(path, 3 * 3600.0)


def _write_settings(home: Path) -> None:
    settings = home / ".config" / "bsd" / "bsd.toml"
    settings.parent.mkdir(parents=True)
    tables = (f'[[sources]]\nkind = "{kind}"\npath = "~/{at}"\n' for kind, at in _SOURCES.items())
    settings.write_text("\n".join(tables))


def _with_entry(content: bytes) -> bytes:
    """Give the first long result of a tool the id `ENTRY`."""
    for line in content.splitlines():
        if b'"role":"toolResult"' in line and len(line) >= _LONG_RESULT:
            found = re.search(rb'"id":"([0-9a-f]{8})"', line)
            assert found is not None
            return content.replace(found[1], ENTRY.encode())
    raise AssertionError("no result of a tool is long")

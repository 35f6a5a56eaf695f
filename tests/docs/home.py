"""The home in which the commands of the documents run: that of `tests/lived_in_home.py`, and more.

It is called `/home/me` in the documents. These sessions are in it; all are idle:

- `main/4f2a0001-0000-4000-8000-000000000001`: OpenClaw, the largest. bsd has not changed it. Its
  entry `12231b40` is a result of a tool, of 3.8 KB.
- `main/harbour`: OpenClaw, titled "The harbour master".
- `main/5ec2e700-0000-4000-8000-000000000002`: OpenClaw, with a key of GitHub in a message.
- `claude-code:-home-me-shop/1a6e0001-0000-4000-8000-000000000001`: Claude Code, titled "mend the
  login of the quokka". bsd has extracted from it; its entry `1a6e0001-0000-4000-8000-000000000002`
  holds `src/auth.py` as Claude Code has read it.
- `claude-code:-home-me-shop/1a6e0003-…`: Claude Code, 40 days old: its program deletes it.
- `claude-code:-home-me-shop/1a6e0004-…`: Claude Code has deleted it; the archive has a copy.
- `claude-code:-home-me-secret/1a6e0002-…`: Claude Code, short.

`bsd.toml` names Claude Code's directory. The daily and hourly jobs are set to once a year.
"""

from __future__ import annotations

from pathlib import Path

from bsd.sample import session_lines
from tests import lived_in_home
from tests.http.web.sample import message, recent, text
from tests.openclaw_tree import add_session

LARGEST = "main/4f2a0001-0000-4000-8000-000000000001"
WITH_KEY = "main/5ec2e700-0000-4000-8000-000000000002"
_KEY = "ghp_" + "7Gk2bQ9xZt4LmW8sVr1NcY5pHd3JfA6eUoXi"


def make_home(home: Path) -> Path:
    """Fill an empty directory; returns the root of bsd in it."""
    root = lived_in_home.make_home(home)
    add_session(root, LARGEST, recent(session_lines(turns=12, seed=3)))
    lines = [
        b'{"type":"session","version":3,"id":"5ec2e700"}\n',
        message("5ec2e701", "user", text(f"Push it with {_KEY}.")),
        message("5ec2e702", "assistant", text("It is pushed."), stopReason="stop"),
    ]
    add_session(root, WITH_KEY, recent(lines))
    return root

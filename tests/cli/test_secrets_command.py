"""`bsd secrets` and `bsd export`: their output and files, and secrets that they never show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actions.test_redact_secret import TOKEN, entries
from tests.cli.conftest import Call
from tests.openclaw_tree import add_session
from tests.session_files import jsonl

RULE = "github-pat"


@pytest.fixture
def leaky(bsd: Call) -> Path:
    return add_session(bsd.root, "main/leaky", jsonl(*entries()))


def test_secrets_are_listed_and_replaced(bsd: Call, leaky: Path) -> None:
    ended = bsd("secrets")
    assert ended.code == 0
    assert f"{RULE}  ghp_… (40 characters)" in ended.out
    assert "main/leaky  #1  e0  message.content[0].text" in ended.out
    assert bsd("secrets", "main/leaky", "--json").document["places"] == 5
    assert bsd("secrets", "main/alpha").out.startswith("No secrets were found in ")
    [one] = [
        each
        for each in bsd("secrets", "list", "--json").document["secrets"]
        if each["rule"] == RULE
    ]
    before = leaky.read_bytes()
    assert "Nothing was changed." in bsd("secrets", "redact", one["hash"], "--dry-run").out
    refused = bsd("secrets", "redact", one["hash"])
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert leaky.read_bytes() == before
    ended = bsd("secrets", "redact", one["hash"][:8], "--in", "main/leaky", "--yes")
    assert ended.code == 0, ended.err
    assert "no remaining copy" in ended.out
    assert TOKEN.encode() not in leaky.read_bytes()
    assert TOKEN not in (bsd.root / ".brainsurgeon/audit.jsonl").read_text()
    again = bsd("secrets", "redact", one["hash"], "--yes")
    assert (again.code, "Try: `bsd secrets` lists them" in again.err) == (1, True)
    assert bsd("secrets", "redact", "ghp", "--yes").code == 2


@pytest.mark.usefixtures("leaky")
def test_a_session_is_exported(bsd: Call, tmp_path: Path) -> None:
    file = tmp_path / "leaky.html"
    ended = bsd("export", "main/leaky", "--redact", "--dry-run", "-o", str(file))
    assert "2 secrets would be replaced." in ended.out
    assert not file.exists()
    ended = bsd("export", "main/leaky", "--redact", "-o", str(file))
    assert ended.code == 0
    assert ended.out.startswith(f"  {RULE}  ghp_… (40 characters)  in 4 entries")
    assert TOKEN not in file.read_text()
    ended = bsd("export", "main/leaky", "-o", str(file))
    assert (ended.code, "exists already" in ended.err) == (1, True)
    ended = bsd("export", "main/leaky", "--format", "md", "-o", str(tmp_path / "a.md"), "--json")
    assert ended.document["bytes"] == (tmp_path / "a.md").stat().st_size
    assert [each["rule"] for each in ended.document["secrets"]] == [RULE, "private-key"]
    assert bsd("export", "main/nowhere", "-o", str(tmp_path / "b")).code == 1

"""The bench compares like with like only if its corpora and its limit have the stated
properties.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsd.sample import session_lines
from tests.bench import limit
from tests.bench.claude import write_transcript
from tests.openclaw_tree import add_session


def test_the_claude_corpus_is_a_chain_of_paired_calls(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_transcript(path, 300_000)
    assert 300_000 <= path.stat().st_size < 700_000
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    chained = [line for line in lines if "uuid" in line]
    parents = [line["parentUuid"] for line in chained]
    assert parents == [None, *(line["uuid"] for line in chained[:-1])]
    blocks = [b for line in lines for b in line.get("message", {}).get("content", []) if b != ""]
    calls = [b["id"] for b in blocks if isinstance(b, dict) and b["type"] == "tool_use"]
    results = [
        b["tool_use_id"] for b in blocks if isinstance(b, dict) and b["type"] == "tool_result"
    ]
    assert calls
    assert calls == results


@pytest.mark.parametrize("how", ["pooled", "at-once"])
def test_the_limit_writes_what_the_store_holds_and_the_shorter_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    lines = list(session_lines(turns=3))
    before, after, scratch = tmp_path / "before", tmp_path / "after", tmp_path / "scratch"
    add_session(before, "main/s", b"".join(lines))
    add_session(after, "main/s", b"".join(lines[:4]))
    store = after / "extracted" / "main_s"
    store.mkdir(parents=True)
    (store / "index.json").write_text("{}")
    (store / "0005_tool_result.json").write_bytes(lines[5])
    scratch.mkdir()

    limit.main(before, after, scratch, how)

    assert float(capsys.readouterr().out) > 0
    written = {path.name: path.read_bytes() for path in (scratch / "0").iterdir()}
    identity = json.loads(lines[5])["id"]
    assert written == {f"{identity}.json": lines[5]}
    assert (scratch / "0.jsonl").read_bytes() == b"".join(lines[:4])
    assert not (scratch / "apart").exists()

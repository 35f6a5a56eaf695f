"""`bsd pause`: a paused session is listed and read, and no command edits it until the pause
ends.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsd.core.layout import Layout
from tests.cli.conftest import Call, out_of, rest


def first_entry(root: Path) -> str:
    line = (root / "agents/main/sessions/alpha.jsonl").read_bytes().splitlines()[2]
    return str(json.loads(line)["id"])


def test_it_lists_begins_and_ends(bsd: Call) -> None:
    assert bsd("pause").out == "nothing is paused\n"
    ended = bsd("pause", "main", "--for", "2h")
    assert (ended.code, "main" in ended.out) == (0, True)
    ended = bsd("pause", "main/al", "--json")
    [one, other] = ended.document["pauses"]
    assert (one["name"], other["name"], other["until"]) == ("main", "main/alpha", None)
    assert one["since"] < one["until"]
    assert bsd("pause", "main", "--end").code == 0
    assert bsd("pause", "main/alpha", "--end").out == "nothing is paused\n"
    audit = (bsd.root / ".brainsurgeon/audit.jsonl").read_text()
    actions = [json.loads(line)["action"] for line in audit.splitlines()]
    assert actions == ["pause", "pause", "pause_end", "pause_end"]


@pytest.mark.parametrize(
    ("line", "told", "code"),
    [
        (("nothing",), "there is no agent nothing", 1),
        (("main/nothing",), "there is no session main/nothing", 1),
        (("main", "--for", "2y"), "Invalid duration '2y'", 2),
        (("main", "--for", "0m"), "Duration too short", 2),
        (("main", "--for", "2h", "--end"), "--end ends a pause now", 2),
        (("--end",), "--for and --end need a NAME", 2),
        (("main", "--end"), "there is no pause of main", 1),
    ],
)
def test_what_makes_no_sense_is_refused(
    bsd: Call, line: tuple[str, ...], told: str, code: int
) -> None:
    ended = bsd("pause", *line)
    assert (ended.code, told in ended.err) == (code, True), ended.err
    assert not Layout(bsd.root).pauses_file.exists()


def test_nothing_edits_it_and_all_that_looks_goes_on(bsd: Call, root: Path) -> None:
    rest(root)
    bsd("extract", "main/beta")
    path = root / "agents/main/sessions/alpha.jsonl"
    before = path.read_bytes()
    bsd("pause", "main")
    rest(root)
    entry = first_entry(root)
    lines = (
        ("extract", "main/alpha"),
        ("restore-all", "main/beta", "--yes"),
        ("undo", "main/beta"),
        ("set-extractable", "main/alpha", entry, "false"),
        ("delete", "main/alpha", "--yes"),
    )
    for line in lines:
        ended = bsd(*line)
        assert ended.code == 4, line
        assert "is paused until it is ended (`bsd pause main`)" in ended.err, line
        assert "Try: `bsd pause main --end` ends the pause" in ended.err, line
    assert path.read_bytes() == before
    for line in (("show", "main/alpha"), ("summary", "main/alpha"), ("search", "the")):
        assert bsd(*line).code == 0
    kept = bsd("archive", "keep", "main/alpha", "--json").document
    assert kept["copied"] == 1
    listed = bsd("sessions", "--json").document
    assert out_of(listed, "main/alpha")["paused"] == "main, until it is ended"
    assert "paused" not in out_of(listed, "other_agent/gamma")
    told = bsd("sessions")
    assert "paused" in told.out
    assert "Paused: main, until it is ended (`bsd pause`)" in told.err
    # All sessions: bsd works on the others.
    result = bsd("extract", "--json")
    assert result.code == 4
    assert out_of(result.document, "main/alpha")["status"] == "busy"
    assert out_of(result.document, "other_agent/gamma")["status"] == "extracted"
    bsd("pause", "main", "--end")
    rest(root)
    assert bsd("extract", "main/alpha").code == 0
    assert path.read_bytes() != before


def test_it_ends_by_its_time(bsd: Call, root: Path) -> None:
    rest(root)
    bsd("pause", "main/alpha", "--for", "30m")
    assert bsd("extract", "main/alpha").code == 4
    path = Layout(root).pauses_file
    document = json.loads(path.read_bytes())
    document["pauses"][0] |= {"until": document["pauses"][0]["since"], "steady_until": 0.0}
    path.write_text(json.dumps(document))
    assert bsd("pause").out == "nothing is paused\n"
    assert bsd("extract", "main/alpha").code == 0


def test_a_broken_file_keeps_edits_away_and_lists_go_on(bsd: Call, root: Path) -> None:
    bsd("pause", "main")
    Layout(root).pauses_file.write_text("{")
    rest(root)
    ended = bsd("extract", "other_agent/gamma")
    assert ended.code != 0
    assert "the list of paused sessions" in ended.err
    assert bsd("sessions").code == 0

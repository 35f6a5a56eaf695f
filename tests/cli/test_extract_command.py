"""`bsd extract` and `restore-all`: many sessions, one answer."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bsd.core import filesystem
from bsd.core.errors import BsdError, Busy, Forbidden, NotFound, Unavailable
from bsd.core.formatting import iso_utc
from bsd.planning.result import SessionResult, Status
from bsd.planning.timing import Cause
from tests.cli.conftest import Call, rest
from tests.cli.fake_actions import Cli
from tests.openclaw_tree import add_session
from tests.planning.timings import PRICED, result_with, timing
from tests.refusing import raising
from tests.session_files import HEADER, LONG, entry, jsonl


def _done(name: str, status: Status = Status.EXTRACTED) -> SessionResult:
    return SessionResult(
        name,
        status,
        entries=2,
        values=3,
        bytes_before=4096,
        bytes_after=1024,
        tokens_saved=768,
        reasons={"extract": 2, "too_recent": 3},
    )


def test_without_a_name_all_sessions_of_all_agents(cli: Cli) -> None:
    assert cli("extract") == 0
    assert sorted(asked[1] for asked in cli.actions.asked) == ["main/a", "main/b", "other/a"]


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["", "dry-run"])
def test_what_lies_where_a_session_should_be_is_named(
    bsd: Call, root: Path, dry_run: list[str]
) -> None:
    sessions = root / "agents" / "main" / "sessions"
    os.mkfifo(sessions / "pipe.jsonl")
    (sessions / "directory.jsonl").mkdir()
    (sessions / "link.jsonl").symlink_to(sessions / "alpha.jsonl")
    ended = bsd("extract", *dry_run)
    assert ended.code == 0
    told = [line for line in ended.err.splitlines() if "is not a regular file" in line]
    odd = ["directory", "link", "pipe"]
    assert [line.partition(" is not ")[0].rpartition("/")[2] for line in told] == [
        f"{name}.jsonl" for name in odd
    ]
    left = {
        one["session"]: one["reason"]
        for one in bsd("--json", "extract", *dry_run).document["sessions"]
        if one["status"] == "left_alone"
    }
    assert left == {"main/foreign": "foreign format"} | {
        f"main/{name}": f"{sessions / name}.jsonl is not a regular file" for name in odd
    }
    for name in odd:
        ended = bsd("extract", f"main/{name}", *dry_run)
        assert ended.code == Forbidden.exit_code
        assert f"session main/{name} is not a regular file" in ended.err


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["", "dry-run"])
def test_a_session_that_fails_among_all_is_a_failure(
    bsd: Call, root: Path, dry_run: list[str]
) -> None:
    rest(root)
    store = root / "extracted"
    store.mkdir()
    (store / "main_alpha").write_text("a file where the store's directory should be")
    ended = bsd("extract", *dry_run)
    if not dry_run:
        assert ended.code == 1
        assert "main/alpha" in ended.err
        assert "Not a directory" in ended.err
    else:
        assert ended.code == bsd("extract", "main/alpha", "--dry-run").code
    assert "renamed meanwhile" not in ended.err
    assert "main/beta" in ended.out


def test_where_names_cannot_be_exchanged_no_try_is_an_error(
    bsd: Call, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    monkeypatch.setattr(filesystem, "swap_names", raising(refused))
    rest(root)
    for _ in range(2):
        ended = bsd("extract", "main/alpha")
        assert (ended.code, "cannot exchange two names" in ended.err) == (0, True)
    log = (root / "logs" / "brainsurgeon.log").read_text()
    assert "Extraction failed" not in log
    assert "[error" not in log
    assert "ERROR" not in log


def test_what_stays_is_told_with_its_reasons_by_the_run_itself(bsd: Call, root: Path) -> None:
    rest(root)
    assert bsd("extract").code == 0
    rest(root)
    told = bsd("extract", "main/alpha", "--dry-run").out
    ended = bsd("extract", "main/alpha")
    assert ended.code == 0
    assert "no changes in 1 session" in ended.out
    for reason in ("turn_open", "already_extracted", "too_recent"):
        assert (reason in told, reason in ended.out) == (True, True), reason
    assert bsd("--json", "extract", "main/alpha").document["totals"]["reasons"]["turn_open"]


def test_what_is_forced_out_in_an_open_turn_says_that_it_stays(bsd: Call, root: Path) -> None:
    rest(root)
    rows = bsd("--json", "context", "main/alpha").document["entries"]
    ended = bsd("set-extractable", "main/alpha", rows[-1]["id"], "true")
    assert ended.code == 0
    assert "is not extracted now: turn_open (an unfinished turn" in ended.err
    rest(root)
    told = bsd("--json", "set-extractable", "main/alpha", rows[-1]["id"], "true").document
    assert told["stays"] == "turn_open"
    rest(root)
    large = max(rows[:8], key=lambda row: int(row["size_bytes"]))
    told = bsd("--json", "set-extractable", "main/alpha", large["id"], "true").document
    assert "stays" not in told
    rest(root)
    told = bsd("--json", "set-extractable", "main/alpha", rows[-1]["id"], "false").document
    assert "stays" not in told


def test_a_session_named_twice_is_done_once(cli: Cli) -> None:
    cli("extract", "main/a", "other/a", "main/a")
    assert [asked[1] for asked in cli.actions.asked] == ["main/a", "other/a"]


def test_options_become_overrides_and_only_those_given(cli: Cli) -> None:
    cli("extract", "main/a", "--keep-recent", "0", "--trigger-types", "thinking, user,")
    cli("extract", "main/a", "--age-threshold-hours", "2", "--dry-run", "--scope", "display")
    assert cli.actions.asked == [
        ("extract", "main/a", False, {"keep_recent": 0, "trigger_types": ["thinking", "user"]}),
        ("extract", "main/a", True, {"age_threshold_hours": 2, "scope": "display"}),
    ]


def test_the_document_has_a_session_each_and_totals(cli: Cli) -> None:
    cli.actions.answers = {"main/a": [_done("main/a")]}
    document = cli.document("extract", "main/a", "other/a")
    assert [session["session"] for session in document["sessions"]] == ["main/a", "other/a"]
    assert document["totals"] == {
        "sessions": 2,
        "extracted": 1,
        "restored": 0,
        "unchanged": 1,
        "left_alone": 0,
        "busy": 0,
        "failed": 0,
        "entries": 2,
        "values": 3,
        "bytes_before": 4096,
        "bytes_after": 1024,
        "bytes_saved": 3072,
        "tokens_saved": 768,
        "tokens_rewritten": 0,
        "cost_now": 0,
        "unpriced": 0,
        "reasons": {"extract": 2, "too_recent": 3},
    }
    assert document["dry_run"] is False
    assert document["interrupted"] is False


def test_a_dry_run_says_what_warm_caches_cost(cli: Cli) -> None:
    asked = timing(Cause.ASKED, time.time() + 60, **PRICED)
    cli.actions.answers = {
        "main/a": [result_with(asked, session="main/a", dry_run=True)],
        "main/b": [result_with(replace(asked, dollars=None), session="main/b", dry_run=True)],
        "other/a": [result_with(timing(Cause.ASKED, None), session="other/a", dry_run=True)],
    }
    assert cli("extract", "--dry-run") == 0
    cost = "main/a: a cut now rewrites 31k cached tokens (about $0.12); cold at "
    assert cost in cli.err
    assert "main/b: a cut now rewrites 31k cached tokens (price unknown); cold at " in cli.err
    assert "other/a" not in cli.err
    assert (
        "an extraction by hand does not wait: 62k cached tokens in 2 sessions would be written "
        "again (about $0.12, without 1 of unknown price)"
    ) in cli.out


def test_a_session_that_goes_meanwhile_is_nothing_wrong_unless_it_was_named(cli: Cli) -> None:
    gone = NotFound("there is no session")
    vanished = SessionResult("main/b", Status.FAILED, reason="vanished", error=NotFound)
    sessions = cli.root / "agents" / "main" / "sessions"
    content = (sessions / "a.jsonl").read_bytes()
    cli.actions.goes = {f"main/{name}": sessions / f"{name}.jsonl" for name in "ab"}
    for options in ([], ["--dry-run"]):
        cli.actions.answers = {"main/a": [gone], "main/b": [vanished]}
        assert cli("extract", *options) == 0
        left = "2 sessions left alone (main/a, main/b): deleted or renamed meanwhile"
        assert left in cli.err
        for path in cli.actions.goes.values():
            path.write_bytes(content)
    cli.actions.goes.clear()
    cli.actions.answers = {"main/a": [gone], "main/b": [vanished]}
    assert cli("extract") == 1, "both are there: something else was not found"
    assert "there is no session" in cli.err
    cli.actions.answers = {"main/a": [gone], "main/b": [vanished]}
    assert cli("extract", "main/a", "main/b") == 1
    cli.actions.answers = {"main/a": [gone], "main/b": [vanished]}
    assert cli("restore-all", "--yes") == 1, "something may still be out of it"


def test_the_exit_code_is_that_of_the_failures_if_they_agree(cli: Cli) -> None:
    def failed(name: str, error: type[BsdError]) -> SessionResult:
        return SessionResult(name, Status.FAILED, reason="it", hint="again", error=error)

    cli.actions.answers = {"main/a": [failed("main/a", Unavailable)]}
    assert cli("extract", "main/a") == 69
    assert "main/a: it" in cli.err
    cli.actions.answers = {name: [failed(name, Forbidden)] for name in ("main/a", "other/a")}
    assert cli("extract") == 77
    cli.actions.answers = {
        "main/a": [failed("main/a", Forbidden)],
        "other/a": [failed("other/a", Unavailable)],
    }
    assert cli("extract") == 1
    assert cli("extract") == 0


def test_people_get_a_table_and_a_sum(cli: Cli) -> None:
    cli.actions.answers = {"main/a": [_done("main/a")]}
    assert cli("extract") == 0
    assert "3 values of 2 entries in 1 session extracted: 3.0 KB (75 %) and ~768 tokens" in cli.out
    assert "no changes in 2 sessions" in cli.out
    assert "dry run" not in cli.out


def test_a_dry_run_says_why_entries_stay_and_that_nothing_was_changed(cli: Cli) -> None:
    cli.actions.answers = {"main/a": [_done("main/a")]}
    cli("extract", "main/a", "--dry-run")
    assert "would be extracted" in cli.out
    assert "too_recent" in cli.out
    assert cli.out.endswith("This was a dry run: nothing was changed.\n")


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (_done("main/a"), SessionResult("main/b", Status.LEFT_ALONE, reason="version 1"), 0),
        (_done("main/a"), SessionResult("main/b", Status.FAILED, reason="odd"), 1),
        (_done("main/a"), NotFound("gone"), 1),
        (SessionResult("main/a", Status.BUSY), SessionResult("main/b", Status.FAILED), 1),
    ],
)
def test_mixed_results(
    cli: Cli, first: SessionResult, second: SessionResult | Exception, code: int
) -> None:
    cli.actions.answers = {"main/a": [first] * 2, "main/b": [second]}
    assert cli("extract", "main/b", "main/a", "other/a") == code
    assert {asked[1] for asked in cli.actions.asked} == {"main/a", "main/b", "other/a"}


def test_busy_sessions_come_last_and_are_waited_for_once(cli: Cli) -> None:
    busy = SessionResult("main/a", Status.BUSY, reason="its run goes on", hint="wait")
    cli.actions.answers = {"main/a": [busy, _done("main/a")], "main/b": [busy, Busy("locked")]}
    assert cli("extract", "main/a", "main/b", "other/a") == 4
    order = [asked[1] for asked in cli.actions.asked]
    assert order == ["main/a", "main/b", "other/a", "main/a", "main/b"]
    assert cli.actions.waits[:3] == [0, 0, 0]
    assert all(0 < wait <= 30 for wait in cli.actions.waits[3:])
    assert cli.err == "Error: main/b is busy: locked\n"
    assert "main/a" not in cli.err


def test_a_dry_run_waits_for_nobody(cli: Cli) -> None:
    cli.actions.answers = {"main/a": [SessionResult("main/a", Status.BUSY)]}
    assert cli("extract", "main/a", "--dry-run") == 4
    assert cli.actions.waits == [0]


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound("no"), 1), (Forbidden("no"), 77), (Unavailable("full"), 69)]
)
def test_the_error_of_a_single_session_is_the_answer(cli: Cli, error: Exception, code: int) -> None:
    cli.actions.answers = {"main/a": [error]}
    assert cli("extract", "main/a") == code
    assert cli.err.startswith("Error: ")


@pytest.mark.parametrize("name", ["main/..", "../main", "main", "main/a/b", "main/a b", "/a", "."])
def test_bad_names_are_usage_errors_and_nothing_is_begun(cli: Cli, name: str) -> None:
    assert cli("extract", "main/a", name) == 2
    assert "Try: " in cli.err
    assert cli.actions.asked == []


def test_a_signal_stops_between_the_sessions_and_the_rest_is_told(cli: Cli) -> None:
    cli.actions.answers = {"main/a": [_done("main/a")], "main/b": [_done("main/b")]}

    def interrupted() -> None:
        if len(cli.actions.asked) == 2:
            signal.raise_signal(signal.SIGTERM)

    cli.actions.acts = interrupted
    assert cli("extract", "main/a", "main/b", "other/a") == 128 + signal.SIGTERM
    assert [asked[1] for asked in cli.actions.asked] == ["main/a", "main/b"]
    assert "Stopped: 1 session done, 3.0 KB saved, 1 not begun" in cli.err
    assert "main/b was left as it was" in cli.err


def test_a_stopped_call_still_prints_its_document(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **_settings: object) -> SessionResult:
        signal.raise_signal(signal.SIGINT)
        return _done("main/a")

    monkeypatch.setattr("bsd.cli.extract.extract", interrupted)
    document = cli.document("extract", "main/a", "main/b")
    assert document["interrupted"] is True
    assert document["totals"]["extracted"] == 1  # it was past the last place to stop
    assert document["interrupted_session"] is None
    assert document["not_begun"] == 1


def test_restore_all_does_not_act_unasked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert cli("restore-all") == 2
    assert "--yes" in cli.err
    assert cli.actions.asked == []


@pytest.mark.parametrize("answer", [True, False])
def test_restore_all_asks(cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda _: True})())
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("click.confirm", confirm)
    code = cli("restore-all", "main/a", "--keep-enabled")
    assert code == (0 if answer else 1)
    assert asked == [f"Put 0 entries (0 B) back into session main/a under {cli.root}?"]
    assert len(cli.actions.asked) == answer


@pytest.mark.parametrize(
    ("options", "enabled"),
    [([], False), (["--keep-enabled"], True), (["main/a"], True)],
)
def test_restore_all_keeps_the_next_extraction_from_starting_again(
    cli: Cli, options: list[str], enabled: bool
) -> None:
    assert cli("restore-all", "--yes", *options) == 0
    assert cli.document("config", "get", "enabled") == {"enabled": enabled}
    assert {asked[2] for asked in cli.actions.asked} == {not enabled}


@pytest.mark.parametrize("options", [[], ["--keep-enabled"], ["main/a"]])
def test_with_extraction_off_already_no_trace_is_left(cli: Cli, options: list[str]) -> None:
    cli("config", "set", "enabled", "false")
    assert cli("restore-all", "--yes", *options) == 0
    assert {asked[2] for asked in cli.actions.asked} == {True}


def test_who_keeps_extraction_on_keeps_the_protection(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda _: True})())
    monkeypatch.setattr("click.confirm", lambda text, **_: text.startswith("Put "))
    assert cli("restore-all") == 0
    assert "`enabled` stays true" in cli.err
    assert {asked[2] for asked in cli.actions.asked} == {False}


def test_it_is_off_before_anything_comes_back(cli: Cli) -> None:
    config, seen = cli.root / ".brainsurgeon" / "config.json", []
    cli.actions.acts = lambda: seen.append(json.loads(config.read_text())["enabled"])
    assert cli("restore-all", "--yes") == 0
    assert seen == [False] * 3


def test_broken_settings_keep_nothing_away(cli: Cli) -> None:
    config = cli.root / ".brainsurgeon" / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text("{")
    assert cli("restore-all", "--yes") == 78
    assert [asked[0] for asked in cli.actions.asked] == ["restore_all"] * 3
    assert "config.json" in cli.err


def test_every_session_failing_to_restore_is_told(cli: Cli) -> None:
    result = SessionResult(
        "main/a", Status.RESTORED, unavailable={"e1 text": "missing"}, warnings=("odd",)
    )
    cli.actions.answers = {"main/a": [result]}
    assert cli("restore-all", "main/a", "--yes") == 1
    assert "main/a: e1 text stays a placeholder: missing" in cli.err
    assert "main/a: odd" in cli.err


def test_a_turn_is_said_to_be_over_of_named_sessions_only(cli: Cli) -> None:
    assert cli("extract", "main/a", "main/b", "--turn-over") == 0
    assert [asked[1:] for asked in cli.actions.asked] == [
        (name, False, {"turn_over": True}) for name in ("main/a", "main/b")
    ]


def test_without_a_name_no_turn_is_said_to_be_over(bsd: Call) -> None:
    ended = bsd("extract", "--turn-over")
    assert ended.code == 2
    assert "--turn-over needs the names of sessions" in ended.err
    assert "bsd extract AGENT/SESSION --turn-over" in ended.err


def test_a_turn_that_is_said_to_be_over_leaves(bsd: Call, root: Path) -> None:
    entries = [entry(0, "user", "look"), *(entry(n, "toolResult", LONG) for n in range(1, 9))]
    written = {"timestamp": iso_utc(time.time() - 60)}
    before = jsonl(HEADER, *(one | written for one in entries))
    path = add_session(root, "main/crashed", before)
    [result] = bsd("--json", "extract", "main/crashed").document["sessions"]
    assert (result["status"], result["reasons"]) == ("unchanged", {"turn_open": 9})
    ended = bsd("--json", "extract", "main/crashed", "--turn-over", "--dry-run")
    assert (ended.document["sessions"][0]["entries"], path.read_bytes()) == (5, before)
    [result] = bsd("--json", "extract", "main/crashed", "--turn-over").document["sessions"]
    assert (result["status"], result["entries"]) == ("extracted", 5)

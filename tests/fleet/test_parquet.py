"""Parquet files of sessions, calls, usage and savings, as DuckDB reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bsd.actions.fleet_export import ExportedFleet, fleet_export
from bsd.actions.trash import delete_session, empty_trash
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, ConfigError, Unavailable
from bsd.core.file_lock import holding
from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout, SessionName
from bsd.core.price_list import PriceSources
from bsd.core.prices import Price, PriceRow
from bsd.fleet.host import take_new_id, this_host
from bsd.fleet.parquet_rows import KINDS
from tests.actions.performed import Caller
from tests.commands import Commands
from tests.openclaw_tree import add_session
from tests.session_files import HEADER, entry, jsonl

_ONE, _TWO = SessionName("main", "one"), SessionName("other", "two")
_SECRET = "the-words-of-a-session"


def _answer(number: int, day: str, tokens: int = 100) -> dict[str, Any]:
    """Return the answer of a provider at noon of a day."""
    made = entry(number, "assistant", _SECRET)
    made["timestamp"] = f"{day}T12:00:00Z"
    made["message"] |= {
        "provider": "anthropic",
        "usage": {
            **dict.fromkeys(("output", "cacheWrite"), 10),
            "input": tokens,
            "cacheRead": 5,
            "cost": {"total": 0.5},
        },
    }
    return made


def _session(*days: str) -> list[dict[str, Any]]:
    """Return a session with a long result and an answer on each of some days."""
    header = HEADER | {"timestamp": f"{days[0]}T11:00:00Z", "cwd": "/home/ada/shop"}
    began = {"timestamp": f"{days[0]}T11:00:00Z"}
    entries = [header, entry(0, "user", f"{_SECRET} title") | began]
    entries.append(entry(1, "toolResult", _SECRET * 100) | began)
    return entries + [_answer(number + 2, day) for number, day in enumerate(days)]


@pytest.fixture
def caller(root: Path) -> Caller:
    add_session(root, str(_ONE), jsonl(*_session("2026-02-01", "2026-02-02", "2026-02-02")))
    add_session(root, str(_TWO), jsonl(*_session("2026-02-02")))
    layout = Layout(root)
    fleet = FleetSettings(host="ada")
    return Caller(layout=layout, config=ConfigService(layout.config_file), fleet=fleet)


def _with(caller: Caller, **settings: Any) -> Caller:
    fleet = FleetSettings(**({"host": "ada"} | settings))
    return Caller(layout=caller.layout, config=caller.config, fleet=fleet)


def _rows(place: Path, kind: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of all files of a kind."""
    files = f"{place}/**/{kind}/host=*/date=*/*.parquet"
    with duckdb.connect() as connection:
        return connection.execute(
            f"SELECT {columns} FROM read_parquet('{files}', hive_partitioning = true) ORDER BY ALL"
        ).fetchall()


def _counts(done: ExportedFleet) -> tuple[int, int, int, int]:
    assert done.complete
    assert done.failed == ()
    return done.sessions, done.written, done.unchanged, done.deleted


def test_only_what_has_changed_is_read_and_written(caller: Caller, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # Two days of sessions, of calls and of usage; nothing was extracted.
    assert _counts(fleet_export(caller, out)) == (2, 6, 0, 0)
    assert _rows(out, "usage", "host, date, agent, model, calls, input_tokens, cost") == [
        ("ada", date(2026, 2, 1), "main", "claude-opus-4-5", 1, 100, 0.5),
        ("ada", date(2026, 2, 2), "main", "claude-opus-4-5", 2, 200, 1.0),
        ("ada", date(2026, 2, 2), "other", "claude-opus-4-5", 1, 100, 0.5),
    ]
    assert _rows(out, "sessions", "date, agent, session, directory, calls, cost") == [
        (date(2026, 2, 1), "main", "one", "/home/ada/shop", 3, 1.5),
        (date(2026, 2, 2), "other", "two", "/home/ada/shop", 1, 0.5),
    ]
    [one, *_] = _rows(out, "calls", "line, entry, epoch(time), output_tokens, cache_read_tokens")
    assert one == (3, "e2", 1769947200.0, 10, 5)
    assert _counts(fleet_export(caller, out)) == (0, 0, 6, 0)

    path = caller.layout.transcript(_TWO)
    with path.open("ab") as file:
        file.write(jsonl(_answer(3, "2026-02-05", tokens=7)))
    # A new day with calls and usage; the session's own row is among those of its first day.
    assert _counts(fleet_export(caller, out)) == (1, 3, 5, 0)
    assert _rows(out, "calls", "date, input_tokens")[-1] == (date(2026, 2, 5), 7)
    # The whole file is written anew, with another last day.
    add_session(
        caller.layout.root, str(_TWO), jsonl(*_session("2026-02-02"), _answer(3, "2026-02-04"))
    )
    assert _counts(fleet_export(caller, out)) == (1, 3, 5, 2)
    assert [day for (day,) in _rows(out, "usage", "DISTINCT date")] == [
        *(date(2026, 2, 1), date(2026, 2, 2), date(2026, 2, 4)),
    ]


def test_types_are_those_that_readers_expect_and_no_text_is_in_the_files(
    caller: Caller, tmp_path: Path
) -> None:
    caller.extract(_ONE, by_hand=True, overrides={"trigger_types": ["tool_result"]})
    fleet_export(caller, tmp_path / "out")
    [[entries, original, saved]] = _rows(
        tmp_path / "out", "savings", "entries, original_bytes, saved_bytes"
    )
    assert entries == 1
    assert original > saved > 1000
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    assert {path.relative_to(tmp_path / "out").parts[0] for path in files} == {*KINDS}
    types: dict[str, str] = {}
    with duckdb.connect() as connection:
        for path in files:
            found = connection.execute(f"DESCRIBE FROM read_parquet('{path}')").fetchall()
            types |= {name: kind for name, kind, *_ in found if name not in {"host", "date"}}
            rows = connection.execute(f"FROM read_parquet('{path}')").fetchall()
            assert _SECRET not in repr(rows)
            compressed = connection.execute(
                f"SELECT DISTINCT compression FROM parquet_metadata('{path}')"
            ).fetchall()
            assert compressed == [("ZSTD",)]
    assert types["time"] == types["created"] == "TIMESTAMP WITH TIME ZONE"
    assert types["cost"] == "DOUBLE"
    assert types["models"] == "VARCHAR[]"
    assert {types[name] for name in ("input_tokens", "size", "saved_bytes", "calls")} == {"BIGINT"}
    database = next(caller.layout.fleet.glob("*.duckdb")).read_bytes()
    assert _SECRET.encode() not in database


def test_a_session_has_rows_as_long_as_bsd_has_it(caller: Caller, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fleet_export(caller, out)
    delete_session(caller, _ONE)  # to the trash
    agents = caller.layout.root / "agents"
    agents.rename(away := tmp_path / "away")  # a disk that is missing is no deletion
    with pytest.raises(ConfigError):
        fleet_export(caller, out)
    away.rename(agents)
    assert _counts(fleet_export(caller, out)) == (0, 0, 6, 0)
    empty_trash(caller)
    assert _counts(fleet_export(caller, out)) == (0, 2, 1, 3)
    assert {agent for (agent,) in _rows(out, "calls", "agent")} == {"other"}
    delete_session(caller, _TWO, permanent=True)
    assert _counts(fleet_export(caller, out))[3] == 3
    assert list(out.rglob("*.parquet")) == []


def test_files_lie_in_the_hosts_directory_of_the_bucket(caller: Caller, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    shared = _with(caller, bucket=f"file://{bucket}")
    done = fleet_export(shared)
    host = this_host(caller.layout, shared.fleet)
    assert done.to == f"file://{bucket}/ada/{host.id}/parquet"
    day = bucket / "ada" / host.id / "parquet" / "usage" / "host=ada" / "date=2026-02-01"
    assert [path.name for path in day.iterdir()] == [f"part-{host.id}.parquet"]
    assert len(_rows(bucket, "calls")) == 4
    # Without its notes bsd writes all anew, and deletes what has no rows.
    stale = day.with_name("date=2025-01-01")
    stale.mkdir()
    (stale / day.joinpath(f"part-{host.id}.parquet").name).write_bytes(b"")
    for path in caller.layout.fleet.glob("*.duckdb"):
        path.write_bytes(b"damaged" * 1000)
    assert _counts(fleet_export(shared)) == (2, 6, 0, 1)
    # A host with a new name takes its files along.
    renamed = _with(caller, bucket=f"file://{bucket}", host="grace")
    assert _counts(fleet_export(renamed)) == (0, 6, 0, 6)
    assert {name for (name,) in _rows(bucket, "calls", "host")} == {"grace"}
    # A clone of this root that has taken an id of its own leaves its original's files alone.
    take_new_id(caller.layout, renamed.fleet, "another machine has this id")
    assert _counts(fleet_export(renamed)) == (0, 6, 0, 0)
    assert len(_rows(bucket, "calls")) == 8


def test_days_before_a_date_are_left_as_they_are(caller: Caller, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert _counts(fleet_export(caller, out, date(2026, 2, 2))) == (2, 3, 0, 0)
    delete_session(caller, _ONE, permanent=True)
    fleet_export(caller, out)
    assert _counts(fleet_export(caller, out, date(2026, 2, 3))) == (0, 0, 0, 0)
    # No session has changed since: none is read.
    other = Caller(layout=Layout(caller.layout.root), config=caller.config, fleet=caller.fleet)
    for path in caller.layout.fleet.glob("*.duckdb"):
        path.unlink()
    assert _counts(fleet_export(other, tmp_path / "new", date(2099, 1, 1))) == (0, 0, 0, 0)


def test_an_export_that_was_stopped_goes_on(caller: Caller, tmp_path: Path) -> None:
    steps = iter([False] * 4 + [True] * 100)
    stopped = Caller(
        layout=caller.layout,
        config=caller.config,
        fleet=caller.fleet,
        stopping=lambda: next(steps),
    )
    done = fleet_export(stopped, tmp_path / "out")
    assert (done.complete, done.written, done.deleted) == (False, 2, 0)
    assert _counts(fleet_export(caller, tmp_path / "out")) == (0, 4, 2, 0)


def test_other_prices_change_costs(caller: Caller, tmp_path: Path) -> None:
    unpriced = _answer(2, "2026-02-01")
    del unpriced["message"]["usage"]["cost"]
    unpriced["message"]["model"] = "ours"
    add_session(caller.layout.root, str(_ONE), jsonl(*_session("2026-02-01")[:3], unpriced))
    fleet_export(caller, tmp_path)
    assert (date(2026, 2, 1), None) in _rows(tmp_path, "calls", "date, cost")
    row = PriceRow("", "ours", 0.0, (), Price(3.0, 5.0, 0.1, ()))
    priced = replace(caller, prices=PriceSources((row,)))
    assert fleet_export(priced, tmp_path).sessions == 2
    assert (date(2026, 2, 1), None) not in _rows(tmp_path, "calls", "date, cost")


def test_refusals_say_what_to_do(
    caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as refused:
        fleet_export(caller)
    assert "--to DIR" in str(refused.value.hint)
    recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
    sealed = _with(caller, bucket=f"file://{tmp_path}", encrypt_to=(recipient,))
    with pytest.raises(ConfigError, match="encrypted"):
        fleet_export(sealed)
    monkeypatch.setattr("bsd.core.file_lock._LOCK_SECONDS", 0.0)
    held = holding(caller.layout.fleet / "parquet.lock", 1.0, Busy("held"))
    with held, pytest.raises(Busy):
        fleet_export(caller, tmp_path / "out")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable) as missing:
        fleet_export(caller, tmp_path / "out")
    assert "brainsurgeond[parquet]" in str(missing.value.hint)


def test_the_command_tells_what_it_wrote(caller: Caller, tmp_path: Path) -> None:
    commands = Commands(caller.layout.root)
    done = commands("fleet", "export", "--to", str(tmp_path / "out"), "--since", "2026-02-02")
    assert (done["written"], done["sessions"], done["complete"]) == (3, 2, True)
    refused = commands.said("fleet", "export")
    assert refused.code == 78
    assert "--to DIR" in json.loads(refused.out)["hint"]

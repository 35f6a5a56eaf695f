"""`bsd archive` for other hosts, as users type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.core.layout import Layout
from tests.cli.conftest import Call, bsd
from tests.fleet.archives import Machine, said_in
from tests.maintenance.keeping import keep
from tests.maintenance.test_forgetting import WORDS, secret_session
from tests.openclaw_tree import add_session
from tests.session_files import NAME, Clock, conversation, jsonl

__all__ = ["bsd"]


@pytest.fixture
def lost(tmp_path: Path, clock: Clock) -> Machine:
    """A machine whose session is in the bucket."""
    layout = Layout(tmp_path / "lost")
    secret_session(layout)
    add_session(layout.root, "main/other", jsonl(*conversation(1)))
    keep(layout, clock, most_bytes=1 << 30)
    clock.ahead += 2 * 86_400
    keep(layout, clock)
    machine = Machine.of(layout, tmp_path / "bucket", "lost")
    machine.put_archive()
    return machine


def test_a_session_of_a_lost_host(bsd: Call, lost: Machine, tmp_path: Path) -> None:
    config = tmp_path / "bsd.toml"
    config.write_text(f'[fleet]\nbucket = "{lost.settings.bucket}"\nhost = "here"\n')
    toml = ("--config", str(config))
    told = bsd("archive", "list", "--host", "*", *toml)
    assert told.code == 0, told
    assert f"lost:{NAME}" in told.out
    assert "2 sessions of 1 host in file://" in told.out
    assert bsd("archive", "list", "--host", "lost", "--json", *toml).document["more"] == 0
    verified = bsd("archive", "verify", "--remote", "--host", "lost", "--full", *toml)
    assert (verified.code, "No problems." in verified.out) == (0, True), verified
    file = tmp_path / "copy.jsonl"
    assert bsd("archive", "bring-back", f"lost:{NAME}", "--to", str(file), *toml).code == 0
    assert WORDS[0].encode() in file.read_bytes()
    back = bsd("archive", "bring-back", f"lost:{NAME}", *toml)
    assert (back.code, f"{NAME} is back" in back.out) == (0, True), back
    assert Layout(bsd.root).transcript(NAME).read_bytes() == file.read_bytes()
    forgotten = bsd("archive", "forget", f"lost:{NAME}", "--lost", "--yes", *toml)
    assert (forgotten.code, "all hosts" in forgotten.out) == (0, True), forgotten
    assert said_in(tmp_path / "bucket", WORDS[0]) == []
    again = bsd("archive", "bring-back", f"lost:{NAME}", *toml)
    assert (again.code, "forgotten for good" in again.err) == (1, True), again
    assert bsd("archive", "list", "--host", "lost", "--json", *toml).document["sessions"]
    assert bsd("archive", "verify", "--remote", "--host", "lost", *toml).code == 0
    entry = bsd("archive", "forget", f"lost:{NAME}", "e1", "--yes", *toml)
    assert (entry.code, "on a host that has the session" in entry.err) == (2, True)


def test_what_cannot_be_asked(bsd: Call, tmp_path: Path) -> None:
    for arguments in (
        ("list", "--host", "*"),
        ("verify",),
        ("verify", "--remote"),
        ("forget", "main/x", "--lost", "--yes"),
        ("bring-back", "a~01234567:main/x"),
    ):
        ended = bsd("archive", *arguments)
        assert (ended.code, "Try:" in ended.err) == (2, True), ended

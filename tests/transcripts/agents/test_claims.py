"""A source belongs to one root: the serving root, the reading roots, and how that changes."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config_file import ConfigService
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout
from bsd.maintenance.verify import verify
from bsd.planning.result import SessionResult, Status
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents import programs
from bsd.transcripts.agents.programs import claims_directory, elsewhere, served_by, take
from tests.actions import performed
from tests.actions.performed import Caller
from tests.logs import capture_logs
from tests.openclaw_tree import set_idle
from tests.transcripts.agents.sources import CLAUDE_CODE, KINDS
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind

SERVED = "is served by the root"
_ODD = b'{"source": 1, "dev": 1, "ino": 1, "root": "/a\\u0000", "root_id": "", "root_dev": 1}'


@pytest.fixture(autouse=True)
def fresh() -> None:
    """No state of another test remains."""
    programs._looked.clear()
    programs._told.clear()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.of(CLAUDE_CODE, tmp_path, CLAUDE_CODE.lines())


def extract(home: Home, layout: Layout | None = None) -> SessionResult:
    layout = layout or home.layout
    config = ConfigService(layout.config_file)
    set_idle(home.path)
    caller = Caller(layout=layout, config=config, budget=RetryBudget(wait=0))
    return caller.extract(home.name, overrides=EVERYTHING)


def another(home: Home, name: str = "other") -> Layout:
    """The same source under another root."""
    root = home.layout.root.with_name(name)
    root.mkdir(exist_ok=True)
    return replace(home.layout, root=root)


def forget_all_claims() -> None:
    shutil.rmtree(claims_directory())
    programs._looked.clear()


@pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])
def test_the_first_that_takes_something_out_serves_it_and_others_only_look(
    tmp_path: Path, kind: Kind
) -> None:
    home = Home.of(kind, tmp_path, kind.lines())
    other = another(home)
    assert served_by(home.layout, home.layout.sources[0]) is None
    assert extract(home).status is Status.EXTRACTED
    assert served_by(other, other.sources[0]) == str(home.layout.root)
    before = home.path.read_bytes()
    result = extract(home, other)
    assert result.status is Status.LEFT_ALONE
    assert result.reason == f"{home.layout.sources[0].name} {SERVED} {home.layout.root}"
    assert result.hint is not None
    assert "bsd sources claim" in result.hint
    caller = Caller(
        layout=other, config=ConfigService(other.config_file), budget=RetryBudget(wait=0)
    )
    assert performed.restore_all(caller, home.name).status is Status.LEFT_ALONE
    entry = performed.context(caller, home.name)["entries"][1]["id"]
    with pytest.raises(LeftAlone, match=SERVED):
        performed.set_extractable(caller, home.name, entry, False)
    assert performed.extraction(caller, home.name).values == 0, "looking is allowed"
    assert home.path.read_bytes() == before
    assert not (other.root / "extracted").exists()


def test_verify_of_another_root_calls_nothing_missing(home: Home) -> None:
    extract(home)
    other = another(home)
    found = verify(other)
    assert found.clean
    assert found.placeholders == 0
    assert found.elsewhere == [f"claude-code {SERVED} {home.layout.root}"]
    found = verify(home.layout)
    assert found.clean
    assert found.placeholders > 0
    assert found.elsewhere == []


def test_an_old_root_claims_what_it_has_taken_out_and_one_that_has_not_does_not(
    home: Home,
) -> None:
    """As after an update: the files hold placeholders, and no root has a claim."""
    extract(home)
    forget_all_claims()
    other = another(home)
    result = extract(home, other)
    assert result.status is Status.LEFT_ALONE
    assert "were extracted by a bsd with another root" in (result.reason or "")
    assert verify(other).clean
    assert served_by(other, other.sources[0]) is None, "it has only looked"
    assert extract(home).status is Status.UNCHANGED
    assert served_by(other, other.sources[0]) == str(home.layout.root)


def test_an_old_root_whose_content_has_expired_is_known_by_its_audit_log(home: Home) -> None:
    extract(home)
    forget_all_claims()
    shutil.rmtree(home.layout.extracted)
    shutil.rmtree(home.layout.history)
    assert elsewhere(home.layout, home.layout.sources[0], look_inside=True) is None


def test_a_root_that_was_moved_serves_on(home: Home) -> None:
    extract(home)
    moved = another(home, "moved")
    moved.root.rmdir()
    home.layout.root.rename(moved.root)
    assert elsewhere(moved, moved.sources[0]) is None
    assert extract(home, moved).status is Status.UNCHANGED
    assert served_by(moved, moved.sources[0]) == str(moved.root)
    again = another(home, home.layout.root.name)  # another home is made at its place
    assert elsewhere(again, again.sources[0]) == f"claude-code {SERVED} {moved.root}"


def test_a_copy_of_a_root_is_another_one(home: Home) -> None:
    extract(home)
    copy = another(home, "copy")
    copy.root.rmdir()
    shutil.copytree(home.layout.root, copy.root)
    assert elsewhere(copy, copy.sources[0]) == f"claude-code {SERVED} {home.layout.root}"
    assert extract(home, copy).status is Status.LEFT_ALONE
    linked = another(home, "linked")
    linked.root.rmdir()
    linked.root.symlink_to(home.layout.root)
    assert elsewhere(linked, linked.sources[0]) is None, "the same by another name"


def test_a_source_has_one_owner_under_each_of_its_names(home: Home, tmp_path: Path) -> None:
    extract(home)
    source = home.layout.sources[0]
    (tmp_path / "link").symlink_to(source.path)
    by_link = replace(another(home), sources=(replace(source, path=tmp_path / "link"),))
    assert elsewhere(by_link, by_link.sources[0]) is not None
    moved = tmp_path / "moved" / source.path.name
    moved.parent.mkdir()
    source.path.rename(moved)
    by_new_name = replace(another(home), sources=(replace(source, path=moved),))
    assert elsewhere(by_new_name, by_new_name.sources[0]) is not None


def test_a_claim_of_a_root_that_was_deleted_is_void(home: Home) -> None:
    other = another(home)
    take(other, other.sources[0])
    assert elsewhere(home.layout, home.layout.sources[0]) is not None
    shutil.rmtree(other.root)
    assert served_by(home.layout, home.layout.sources[0]) is None
    assert extract(home).status is Status.EXTRACTED


def test_a_claim_of_a_root_whose_disk_is_away_holds(home: Home) -> None:
    other = another(home)
    take(other, other.sources[0])
    (file,) = claims_directory().glob("*.json")
    claim = json.loads(file.read_bytes())
    file.write_text(json.dumps({**claim, "root_dev": claim["root_dev"] + 1}))
    shutil.rmtree(other.root)
    assert extract(home).status is Status.LEFT_ALONE
    assert take(home.layout, home.layout.sources[0]) == str(other.root)
    assert extract(home).status is Status.EXTRACTED


def test_where_nothing_can_be_noted_bsd_goes_on_and_says_so(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a unit that may write only to the root."""
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with capture_logs() as lines:
        assert extract(home).status is Status.EXTRACTED
        assert extract(home).status is Status.UNCHANGED
    told = [line["event"] for line in lines]
    assert len([text for text in told if "cannot be recorded" in text]) == 1
    programs._looked.clear()
    # Nor does that let another root in: the placeholders in the transcripts prevent it.
    assert extract(home, another(home)).status is Status.LEFT_ALONE


def _claim(**more: object) -> bytes:
    said = {"source": "/a", "dev": 1, "ino": 1, "root": "/b", "root_id": "x", "root_dev": 1}
    return json.dumps(said | more).encode()


_BROKEN = [
    *(b"", b"[]", b"{}", b'{"source": 1}', b"\xff", _ODD),
    *(b"[" * 100_000, b'{"source":' * 100_000, b'{"dev":' + b"9" * 5000 + b"}"),
    *(_claim(source=["/a"]), _claim(source="/\ud800"), _claim(root={"/": 1}), _claim(root="b")),
    *(_claim(root_id=["x"]), _claim(root_id=None), _claim(dev="1"), _claim(ino=1.5)),
]


@pytest.mark.parametrize("broken", _BROKEN, ids=range(len(_BROKEN)))
def test_a_broken_claim_is_none_and_is_told(home: Home, broken: bytes) -> None:
    claims_directory().mkdir(parents=True)
    (claims_directory() / "x.json").write_bytes(broken)
    with capture_logs() as lines:
        assert extract(home).status is Status.EXTRACTED
    assert any("cannot be read" in line["event"] for line in lines)


def test_hostile_files_in_a_source_hold_nothing_up(home: Home) -> None:
    os.mkfifo(home.path.with_name("pipe.jsonl"))
    home.path.with_name("zero.jsonl").symlink_to("/dev/zero")
    assert extract(home).status is Status.EXTRACTED


def test_of_two_that_begin_at_once_one_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    other = another(home)
    found = programs._claim_to

    def first(source: Any) -> Any:
        monkeypatch.setattr(programs, "_claim_to", found)
        claim = found(source)
        take(other, source)  # between the look and the claim
        return claim

    monkeypatch.setattr(programs, "_claim_to", first)
    assert extract(home).status is Status.LEFT_ALONE


def test_agents_of_the_root_are_nobody_elses(tmp_path: Path, home: Home) -> None:
    assert not claims_directory().exists()
    assert home.layout.source_of("main") is None

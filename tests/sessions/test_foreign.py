"""Sessions from which another root's bsd has extracted are left alone.

As when two machines keep the same directory of sessions: each machine has a root and claims of
its own, and does not see those of the other.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bsd.actions import list_sessions
from bsd.actions.extract import extract
from bsd.core.config_file import ConfigService
from bsd.core.errors import LeftAlone
from bsd.core.layout import Layout, SessionName
from bsd.maintenance.doctor import examine
from bsd.maintenance.search import search
from bsd.maintenance.verify import verify
from bsd.planning.result import SessionResult, Status
from bsd.sessions.foreign import foreign_reason
from bsd.sessions.idle import RetryBudget
from bsd.transcripts.agents import programs
from bsd.transcripts.agents.programs import served_by
from tests.actions import performed
from tests.actions.performed import Caller
from tests.maintenance.keeping import DAY, keep
from tests.openclaw_tree import set_idle
from tests.session_files import Clock
from tests.transcripts.agents.sources import KINDS
from tests.transcripts.agents.sources.tree import EVERYTHING, Home, Kind, raw, without_restored

each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])


@dataclass(frozen=True)
class Machine:
    """A machine: a root, and a user's claims."""

    layout: Layout
    state: Path
    patch: pytest.MonkeyPatch

    def _here(self) -> Caller:
        self.patch.setenv("XDG_STATE_HOME", str(self.state))
        programs._looked.clear()
        for path in self.layout.sources[0].path.rglob("*.jsonl"):
            set_idle(path)
        config = ConfigService(self.layout.config_file)
        return Caller(layout=self.layout, config=config, budget=RetryBudget(wait=0))

    def extract(self, name: SessionName) -> SessionResult:
        return extract(self._here(), name, settings=EVERYTHING)

    def restore_all(self, name: SessionName) -> SessionResult:
        return performed.restore_all(self._here(), name)

    def pin(self, name: SessionName) -> Any:
        caller = self._here()
        entry = performed.context(caller, name)["entries"][2]["id"]
        return performed.set_extractable(caller, name, entry, False)

    def copy_sessions(self) -> None:
        """Run the job once, two days after the last line."""
        layout = self._here().layout
        for path in layout.sources[0].path.rglob("*.jsonl"):
            set_idle(path, 2 * DAY)
        keep(layout, Clock())

    def serves(self) -> bool:
        self._here()
        return served_by(self.layout, self.layout.sources[0]) == str(self.layout.root)


@dataclass(frozen=True)
class Synced:
    """Two machines with the same sessions: `theirs` was extracted from on the first machine."""

    one: Machine
    other: Machine
    theirs: SessionName
    free: SessionName
    paths: dict[SessionName, Path]
    whole: bytes


@pytest.fixture(params=KINDS, ids=[kind.kind for kind in KINDS])
def synced(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Synced:
    kind: Kind = request.param
    home = Home.of(kind, tmp_path, kind.lines())
    free, second = home.second()
    second.parent.mkdir(exist_ok=True)
    shutil.copyfile(home.path, second)
    (other := tmp_path / "other").mkdir()
    one = Machine(home.layout, tmp_path / "state", monkeypatch)
    two = Machine(replace(home.layout, root=other), tmp_path / "other state", monkeypatch)
    whole = home.path.read_bytes()
    # The name inside the copy does not matter here; its lines, though, must not be copies.
    second.write_bytes(_renewed(whole))
    set_idle(second)
    assert one.extract(home.name).status is Status.EXTRACTED
    paths = {home.name: home.path, free: second}
    return Synced(one, two, home.name, free, paths, whole)


def _renewed(content: bytes) -> bytes:
    """A session with other texts and ids."""
    return content.replace(b"long old text", b"long new text").replace(b'"0000', b'"1000')


def test_it_blocks_itself_alone(synced: Synced) -> None:
    before = synced.paths[synced.theirs].read_bytes()
    result = synced.other.extract(synced.theirs)
    assert result.status is Status.LEFT_ALONE
    assert "were extracted by a bsd with another root" in (result.reason or "")
    assert not synced.other.serves(), "to look is no claim"
    with pytest.raises(LeftAlone, match="another root"):
        synced.other.pin(synced.theirs)
    assert synced.paths[synced.theirs].read_bytes() == before
    assert synced.other.extract(synced.free).status is Status.EXTRACTED
    assert synced.other.serves()
    # And the other way round.
    result = synced.one.extract(synced.free)
    assert result.status is Status.LEFT_ALONE
    assert synced.one.restore_all(synced.theirs).status is Status.RESTORED
    assert without_restored(synced.paths[synced.theirs].read_bytes()) == synced.whole


def test_a_copy_of_it_as_it_is_does_not_make_it_this_roots(synced: Synced) -> None:
    """The archive of the other machine has a copy of each session, including this session."""
    assert synced.other.extract(synced.free).status is Status.EXTRACTED
    synced.other.copy_sessions()
    assert synced.other.layout.archive_dir(synced.theirs).is_dir()
    result = synced.other.extract(synced.theirs)
    assert result.status is Status.LEFT_ALONE
    assert "were extracted by a bsd with another root" in (result.reason or "")
    assert foreign_reason(synced.other.layout, synced.theirs) is not None


def test_what_was_put_back_there_may_be_extracted_here(synced: Synced) -> None:
    synced.one.restore_all(synced.theirs)
    path = synced.paths[synced.theirs]
    path.write_bytes(synced.whole)
    assert synced.other.extract(synced.theirs).status is Status.EXTRACTED


def test_it_is_named_with_the_reason_and_is_no_fault(synced: Synced) -> None:
    layout = synced.other.layout
    synced.other._here()
    assert foreign_reason(layout, synced.free) is None
    assert "another root" in (foreign_reason(layout, synced.theirs) or "")
    found = verify(layout)
    assert found.clean
    [finding] = [each for each in found.findings if each.kind == "elsewhere"]
    assert finding.where == str(synced.theirs)
    told = [each for each in examine(layout) if str(synced.theirs) in each.message]
    assert [each.level for each in told] == ["warn"]
    caller = synced.other._here()
    search(layout, "text")  # counts the text in the sessions
    rows = list_sessions.list_all_sessions(caller).sessions
    alone = {row.session: row.left_alone for row in rows}
    assert alone[str(synced.free)] is None
    assert "another root" in (alone[str(synced.theirs)] or "")


def test_one_whose_store_was_lost_here_is_no_foreign_one(synced: Synced) -> None:
    """Its content is missing, and bsd must report that."""
    layout = synced.one.layout
    synced.one._here()
    for place in (layout.extracted, layout.history, layout.archive):
        shutil.rmtree(place, ignore_errors=True)
    assert foreign_reason(layout, synced.theirs) is None
    assert not verify(layout).clean


def test_a_copy_of_a_session_of_this_root_is_no_foreign_one(synced: Synced) -> None:
    path = synced.paths[synced.theirs]
    copy = path.with_name(path.name[:-7] + "e" + path.name[-6:])
    shutil.copyfile(path, copy)
    name = SessionName(synced.theirs.agent, copy.stem)
    assert foreign_reason(synced.one.layout, name) is None
    assert foreign_reason(synced.other.layout, name) is not None


@each_kind
def test_text_that_looks_like_a_marker_makes_no_session_foreign(kind: Kind, tmp_path: Path) -> None:
    home = Home.of(kind, tmp_path, kind.lines())
    quoted = raw(kind.lines()).replace(
        b"long old text", b'\\"_extracted\\":{\\"ref\\":\\"0001_x\\"} [[extracted-x]]', 1
    )
    home.path.write_bytes(quoted)
    assert foreign_reason(home.layout, home.name) is None

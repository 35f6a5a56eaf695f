"""Every extracted value comes back, into copies of all kinds, if it is anywhere in the root."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from bsd.core.answers import as_json
from bsd.core.config_file import ConfigService
from bsd.core.errors import Busy, Conflict, Invalid
from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.maintenance import catalog
from bsd.maintenance.retention import RetentionRun
from bsd.maintenance.session_check import Verification
from bsd.maintenance.trash import Trash
from bsd.maintenance.verify import verify
from bsd.sessions.idle import RetryBudget
from bsd.store.originals import digest
from bsd.transcripts.agents.entry import Marker, ends_in_placeholder, is_placeholder
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.programs import layout_of
from bsd.transcripts.spans import ValuePath, format_path
from tests.actions import performed
from tests.actions.performed import Caller
from tests.sessions.copying_programs import PROGRAMS, Program, lines_of, written
from tests.transcripts.agents.sources.tree import EVERYTHING

_STEP_SECONDS = 700.0  # protection has ended, and no turn is open
_MUCH_LATER = 30 * 86_400.0
_WEIGHTS = {"extract": 4.0, "fork": 2.0, "rewrite": 2.0, "retention": 0.3, "lose a file": 0.3}
_PIN = re.compile(rb', ?"_extractable": ?(?:true|false|\d+)')


# --- a root with sessions of all programs, the events in them, and the same without bsd ---


class Root:
    """A root of bsd, and the programs that write in it."""

    def __init__(self, layout: Layout, now: Callable[[], float]) -> None:
        self.layout = layout
        self.config = ConfigService(layout.config_file)
        self.config.update(
            {**EVERYTHING, "prefix_bound": "extract", "keep_after_restore_seconds": 0}
        )
        budget = RetryBudget(wait=0.0, clock=now)
        self.caller = Caller(layout=layout, config=self.config, actor="test", budget=budget)

    def names(self) -> list[SessionName]:
        return sorted(catalog.names(self.layout), key=str)

    def leave(self) -> None:
        """Restore every extracted value, as `bsd restore-all --yes` does."""
        self.config.update({"enabled": False})
        for name in self.names():
            performed.restore_all(self.caller, name, leaving=True)

    def stored(self) -> Iterator[bytes]:
        """All lines in its stores, including those in the trash."""
        for above in (self.layout.extracted, self.layout.trash):
            for path in above.rglob("*.json"):
                if path.name != "index.json" and re.match(r"\d+_", path.name):
                    yield path.read_bytes()

    def verify(self) -> Verification:
        return verify(self.layout, wait=0.0)


class World:
    """Sessions of all programs, twins of them, and a second root."""

    def __init__(self, top: Path, chance: Random) -> None:
        self._top = top
        self._twins = top / "twins"
        self._chance = chance
        self._now = time.time() + _STEP_SECONDS
        self.done: list[str] = []
        for program in PROGRAMS:
            path = self._new_path(program)
            for each in (path, self._twin(path)):
                each.parent.mkdir(parents=True, exist_ok=True)
                each.write_bytes(written(program.lines()))
        locks = top / "home/.codex/thread-writer-locks"
        locks.mkdir()
        (locks / ".coordination.lock").touch()
        sources = [
            SourceSettings(kind=program.name, path=top / program.source)
            for program in PROGRAMS
            if program.source
        ]
        (top / "second" / "root" / "agents").mkdir(parents=True)
        second = Layout(top / "second" / "root")
        self.roots = [Root(layout_of(top / "root", sources), self.now), Root(second, self.now)]

    def now(self) -> float:
        return self._now

    def live(self, steps: int) -> None:
        """Let `steps` random events happen; an event that bsd refuses changes no file."""
        acts: dict[str, Callable[[], object]] = {
            "extract": self._extract,
            "restore": self._restore,
            "restore all": lambda: performed.restore_all(self._surgeon, self._name()),
            "pin": self._pin,
            "undo": lambda: performed.undo(self._surgeon, self._name()),
            "copy": self._copy,
            "fork": lambda: self._write_copy(lambda program: program.fork),
            "rewrite": lambda: self._write_copy(lambda program: program.rewrite),
            "migrate": self._migrate,
            "rename": self._rename,
            "archive": self._archive,
            "delete": self._delete,
            "delete through bsd": self._delete_through_bsd,
            "carry over": self._carry_over,
            "retention": self._retention,
            "lose a file": self._lose,
            "mend": self._mend,
        }
        weights = [_WEIGHTS.get(name, 1.0) for name in acts]
        for what in self._chance.choices(list(acts), weights, k=steps):
            self._now += _STEP_SECONDS
            self.done.append(what)
            try:
                acts[what]()
            except Busy:
                raise
            except (Conflict, Invalid, LookupError) as refused:
                self.done[-1] += f" (refused: {refused})"

    # --- events by bsd ---

    @property
    def _surgeon(self) -> Caller:
        return self.roots[0].caller

    def _extract(self) -> None:
        types = [EVERYTHING["trigger_types"], ["tool_result"], ["user", "tool_call"]]
        overrides = {"trigger_types": self._chance.choice(types), "keep_recent": 0}
        overrides["keep_chars"] = self._chance.choice([0, 0, 20])
        self._surgeon.extract(self._name(), by_hand=True, overrides=overrides)

    def _restore(self) -> None:
        name = self._name()
        away = [one for one in performed.entries(self._surgeon, name, start=0) if one.extracted]
        if not away:
            return
        entry = self._chance.choice(away)
        keys = self._chance.choice([None, list(entry.keys[:1])])
        performed.restore(self._surgeon, name, f"#{entry.index}", keys)

    def _pin(self) -> None:
        name = self._name()
        entries = performed.entries(self._surgeon, name, start=1)
        entry = self._chance.choice(entries)
        performed.set_extractable(
            self._surgeon, name, f"#{entry.index}", self._chance.choice([True, False, 2])
        )

    def _delete_through_bsd(self) -> None:
        """Move sessions to the trash, and sometimes back; or delete them for good."""
        root = self.roots[0]
        path = self._path(lambda one: one.name in ("openclaw", "flat"))
        name = SessionName(path.parents[1].name, path.stem)
        trash = Trash(
            root.layout, "never", actor="test", budget=RetryBudget(wait=0.0, clock=self.now)
        )
        deleted = trash.delete(name, permanent=self._chance.random() < 0.5)
        if not deleted.permanent and self._chance.random() < 0.5:
            trash.restore(deleted.items[0].id)
        else:
            self._twin(path).unlink()

    def _retention(self) -> None:
        """Content of today stays; much later, all of it is deleted."""
        later = self._chance.choice([0.0, 0.0, _MUCH_LATER])
        RetentionRun(
            self.roots[0].layout, actor="test", clock=lambda: self._now + later
        ).clean_store("24h")

    def _mend(self) -> None:
        remark = self._surgeon.remark
        verify(self.roots[0].layout, repair=True, wait=0.0, remark=remark)

    # --- events by programs and people ---

    def _copy(self) -> None:
        path = self._path()
        self._each(path, self._new_path(self._program(path)), lambda content: content)

    def _write_copy(self, how: Callable[[Program], Callable[[Any, UUID], Any]]) -> None:
        path = self._path()
        program, name = self._program(path), self._id()
        change = how(program)
        target = self._directory(program) / program.file_name(name)
        self._each(path, target, lambda content: written(change(lines_of(content), name)))

    def _migrate(self) -> None:
        """A new version rewrites all its sessions, and drops members it does not know."""
        path = self._path(lambda one: one.name != "claude-code")
        program, name = self._program(path), self._id()
        self._each(path, path, lambda content: written(program.rewrite(lines_of(content), name)))

    def _rename(self) -> None:
        path = self._path()
        target = self._new_path(self._program(path))
        for one, other in ((path, target), (self._twin(path), self._twin(target))):
            one.rename(other)

    def _archive(self) -> None:
        path = self._path(lambda one: one.archive is not None)
        target = self._top / str(self._program(path).archive) / path.name
        target.parent.mkdir(exist_ok=True)
        self._twin(target).parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        self._twin(path).rename(self._twin(target))

    def _delete(self) -> None:
        path = self._path()
        siblings = [one for one in self.paths() if self._program(one) is self._program(path)]
        if len(siblings) > 1:
            path.unlink()
            self._twin(path).unlink()

    def _carry_over(self) -> None:
        """A user takes a session along to another root."""
        path = self._path(lambda one: one.name == "openclaw")
        target = self._top / "second" / path.relative_to(self._top)
        self._each(path, target, lambda content: content)

    def _lose(self) -> None:
        files = sorted(self.roots[0].layout.extracted.rglob("[0-9]*_*.json"))
        self._chance.choice(files).unlink()

    # --- places of files ---

    def paths(self) -> list[Path]:
        """All sessions' files of the first root."""
        directories = {self._top / one.directory for one in PROGRAMS}
        directories |= {self._top / one.archive for one in PROGRAMS if one.archive}
        return sorted(path for one in directories for path in one.glob("*.jsonl"))

    def expected(self, path: Path) -> bytes:
        """Return the session as it would be without bsd."""
        return self._twin(path).read_bytes()

    def _each(self, path: Path, target: Path, change: Callable[[bytes], bytes]) -> None:
        for one, other in ((path, target), (self._twin(path), self._twin(target))):
            content = change(one.read_bytes())
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_bytes(content)

    def _path(self, fits: Callable[[Program], bool] = lambda _: True) -> Path:
        return self._chance.choice([one for one in self.paths() if fits(self._program(one))])

    def _name(self) -> SessionName:
        return self._chance.choice(self.roots[0].names())

    def _program(self, path: Path) -> Program:
        for one in PROGRAMS:
            if path.parent in {self._top / one.directory, self._top / (one.archive or "none")}:
                return one
        raise AssertionError(path)

    def program_of(self, path: Path) -> Program:
        """Return the program of a file's session, in any root."""
        second = self._top / "second"
        return self._program(
            self._top / path.relative_to(second) if path.is_relative_to(second) else path
        )

    def _directory(self, program: Program) -> Path:
        return self._top / program.directory

    def _new_path(self, program: Program) -> Path:
        return self._directory(program) / program.file_name(self._id())

    def _id(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128), version=4)

    def _twin(self, path: Path) -> Path:
        return self._twins / path.relative_to(self._top)

    def __str__(self) -> str:
        return "; ".join(self.done)


def but_for_pins(content: bytes) -> bytes:
    """Leave pins out of the comparison: an entry that a person pinned stays pinned."""
    return _PIN.sub(b"", content)


_OURS = ("_extracted", "_extractable", "_restored")
_MISSING = ("missing_file", "corrupt_file", "foreign_file", "unmarked_placeholder")
_SEEDS = int(os.environ.get("BSD_EXAMPLES", "8"))  # more, to look for trouble
_STEPS = int(os.environ.get("BSD_STEPS", "25"))


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_all_that_is_anywhere_in_the_root_comes_back(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path, Random(seed))
    world.live(_STEPS)
    for root in world.roots:
        root.leave()
        check_verify(root, left_away(root, world), str(world))


def left_away(root: Root, world: World) -> set[str]:
    """Entries with a value that did not come back, because the root no longer holds it."""
    found = set()
    stored = list(root.stored())
    for name in root.names():
        path = root.layout.session_file(name)
        content, expected = path.read_bytes(), world.expected(path)
        if but_for_pins(content) == but_for_pins(expected):
            continue
        fmt = world.program_of(path).fmt
        for now, was in zip(lines_of(content), lines_of(expected), strict=True):
            for place, value, instead in differences(now, was):
                gone = Gone(now, place, value, instead, fmt)
                assert not gone.is_held(stored), f"{name} {place} after {world}"
                if gone.is_certain():
                    found.add(f"{name} {fmt.info(now).id}")
    return found


@dataclass(frozen=True)
class Gone:
    """A value that was not restored."""

    line: dict[str, Any]
    place: ValuePath
    value: Any
    instead: Any
    fmt: TranscriptFormat

    @property
    def text(self) -> str:
        """Return the text at a value's place."""
        text = self.instead["text"] if isinstance(self.instead, dict) else self.instead
        assert isinstance(text, str)
        return text

    @property
    def marker(self) -> Marker | None:
        """Return the marker that names the stored value, if there is such a marker."""
        marker = Marker.of(self.line)
        return marker if marker and format_path(self.place) in marker.keys else None

    def is_held(self, stored: list[bytes]) -> bool:
        """Whether the value that a marker names is stored; without a marker, a value of the
        entry itself.
        """
        if self.marker:
            return any(digest(raw) == self.marker.hash for raw in stored)
        wanted = ends_in_placeholder(self.text)
        entries = map(json.loads, stored)
        return any(
            self.fmt.info(entry).id == wanted and contains(entry, self.value) for entry in entries
        )

    def is_certain(self) -> bool:
        """False for the end of a text in another entry without a marker: any program may write
        that.
        """
        own = ends_in_placeholder(self.text) == self.fmt.info(self.line).id
        return own or self.marker is not None or is_placeholder(self.text)


def differences(now: Any, was: Any, path: ValuePath = ()) -> Iterator[tuple[ValuePath, Any, Any]]:
    """Places where a line differs from the original, apart from members that bsd writes."""
    if isinstance(now, dict) and isinstance(was, dict) and now.get("type") == was.get("type"):
        leaves = ["thinkingSignature"] if away(now.get("thinking")) else []  # with the thinking
        keys = [key for key in now if key not in _OURS or path]
        assert keys == [k for k in was if (k not in _OURS or path) and k not in leaves], path
        for key in keys:
            yield from differences(now[key], was[key], (*path, key))
    elif isinstance(now, list) and isinstance(was, list):
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            yield from differences(one, other, (*path, index))
    elif now != was:
        yield path, was, now


def away(value: Any) -> bool:
    """Whether a placeholder is at a value's place."""
    return isinstance(value, str) and ends_in_placeholder(value) is not None


def contains(tree: Any, value: Any) -> bool:
    inside = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return bool(tree == value) or any(contains(one, value) for one in inside)


def check_verify(root: Root, gone: set[str], after: str) -> None:
    """Verify finds exactly the lost values missing, and reports the expired values."""
    found = root.verify()
    missing = {one.where for one in found.findings if one.kind in _MISSING}
    assert missing <= gone, (missing - gone, after)
    assert len(gone - missing) <= found.expired, (gone - missing, as_json(found), after)
    assert bool(found.placeholders) == bool(gone), (as_json(found), after)

"""Whatever was taken out comes back, into copies of all kinds, if it is anywhere in the root."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bsd.agents.dialect import Format
from bsd.agents.marker import Marker, ends_in_placeholder, is_placeholder
from bsd.foundation.value_path import ValuePath, format_path
from bsd.store.extracted import digest
from tests.session.copies_world import Root, World, but_for_pins
from tests.session.copying_programs import lines_of

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
    """Entries with a value that did not come back, for nothing in the root holds it any more."""
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
                    found.add(f"{name} {fmt.facts(now).id}")
    return found


@dataclass(frozen=True)
class Gone:
    """A value that is still away."""

    line: dict[str, Any]
    place: ValuePath
    value: Any
    instead: Any
    fmt: Format

    @property
    def text(self) -> str:
        """What stands where it was."""
        text = self.instead["text"] if isinstance(self.instead, dict) else self.instead
        assert isinstance(text, str)
        return text

    @property
    def marker(self) -> Marker | None:
        """What tells where it was put, if the line says so."""
        marker = Marker.of(self.line)
        return marker if marker and format_path(self.place) in marker.keys else None

    def is_held(self, stored: list[bytes]) -> bool:
        """Whether what a marker names is stored; without one, a value of the entry itself."""
        if self.marker:
            return any(digest(raw) == self.marker.hash for raw in stored)
        wanted = ends_in_placeholder(self.text)
        entries = map(json.loads, stored)
        return any(
            self.fmt.facts(entry).id == wanted and contains(entry, self.value) for entry in entries
        )

    def is_certain(self) -> bool:
        """Not so: the end of a text, in another entry, without marker. Anybody may write that."""
        own = ends_in_placeholder(self.text) == self.fmt.facts(self.line).id
        return own or self.marker is not None or is_placeholder(self.text)


def differences(now: Any, was: Any, path: ValuePath = ()) -> Iterator[tuple[ValuePath, Any, Any]]:
    """Where a line is not what it was, but for what bsd writes into lines itself."""
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
    """Whether a placeholder stands where a value was."""
    return isinstance(value, str) and ends_in_placeholder(value) is not None


def contains(tree: Any, value: Any) -> bool:
    inside = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return bool(tree == value) or any(contains(one, value) for one in inside)


def check_verify(root: Root, gone: set[str], after: str) -> None:
    """What is gone, and nothing else, is what verify finds missing; it tells of what expired."""
    found = root.verify()
    missing = {one.where for one in found.findings if one.kind in _MISSING}
    assert missing <= gone, (missing - gone, after)
    assert len(gone - missing) <= found.expired, (gone - missing, found.as_json(), after)
    assert bool(found.placeholders) == bool(gone), (found.as_json(), after)

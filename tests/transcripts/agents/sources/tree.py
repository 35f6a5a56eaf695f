"""Other programs' directories as they leave them, and conditions that hold after an edit."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bsd.core.layout import Layout, SessionName
from bsd.core.settings import SourceSettings
from bsd.transcripts.agents.programs import layout_of
from bsd.transcripts.spans import parse_path
from tests.openclaw_tree import set_idle

LONG = "long old text, " * 60

# Settings with which every extractable value leaves.
EVERYTHING = {
    "trigger_types": ["thinking", "tool_call", "tool_result", "assistant", "user", "system"],
    "min_value_length": 40,
    "keep_recent": 0,
}


@dataclass(frozen=True)
class Kind:
    """A program: the place of its sessions below its home, and an example session."""

    kind: str
    sessions: str
    directory: str
    session: str
    lines: Callable[[], list[dict[str, Any]]]
    recorded: str  # which files of the recorded transcripts are its own
    reads: Callable[[bytes], list[dict[str, Any]]]  # a model of its reader
    is_alone: bool = False  # each session has a directory of its own
    below: str = ""  # the fixed end of `directory`, which is no part of an agent's name


@dataclass(frozen=True)
class Home:
    """A program's home directory with a session in it, and a root of bsd beside it."""

    kind: Kind
    layout: Layout
    name: SessionName
    path: Path

    @property
    def source(self) -> Path:
        return self.layout.sources[0].path

    def place(self, name: str) -> Path:
        """The directory of the agent that is called `name` in the last step of its own name."""
        own = self.path.parents[len(Path(self.kind.below).parts)]
        return own.with_name(name) / self.kind.below

    def other_place(self) -> Path:
        """The directory of another agent."""
        own = self.path.parents[len(Path(self.kind.below).parts)]
        return self.place(f"{own.name[:-1]}5")

    def second(self) -> tuple[SessionName, Path]:
        """The name and path of another session, in the same directory if possible."""
        stem = self.path.stem
        path = self.path.with_name(f"{stem[:-1]}f{self.path.suffix}")
        if self.kind.is_alone:
            path = self.other_place() / self.path.name
        agent = self.layout.sources[0].agent_at(path.parent)
        assert agent is not None
        return SessionName(agent, path.stem), path

    @classmethod
    def of(cls, kind: Kind, top: Path, content: Path | Iterable[dict[str, Any]]) -> Home:
        source = top / "home" / kind.sessions
        path = source / kind.directory / f"{kind.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(raw(content))
        set_idle(path)
        root = top / "root"
        root.mkdir(parents=True, exist_ok=True)
        layout = layout_of(root, [SourceSettings(kind=kind.kind, path=source)])
        [(agent, _)] = layout.session_dirs()
        return cls(kind, layout, SessionName(agent, kind.session), path)


def recorded_homes(kind: Kind, top: Path, recorded: Path) -> Iterator[tuple[Home, bytes]]:
    """A home for each recorded session of a program, and that session's bytes."""
    for number, path in enumerate(sorted(recorded.glob(kind.recorded))):
        yield Home.of(kind, top / str(number), path), path.read_bytes()


def raw(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


def away(old: bytes, new: bytes) -> int:
    """Count the extracted values; all other content must be unchanged, the order of members too."""
    count = 0
    old_lines, new_lines = old.split(b"\n"), new.split(b"\n")
    assert len(old_lines) == len(new_lines)
    for before, after in zip(old_lines, new_lines, strict=True):
        if before == after:
            continue
        was, now = json.loads(before), json.loads(after)
        for key in now.pop("_extracted")["keys"]:
            *above, last = parse_path(key)
            one, other = was, now
            for step in above:
                one, other = one[step], other[step]
            _check_stand_in(one[last], other[last])
            other[last] = one[last]
            if last == "thinking" and "thinkingSignature" in one:  # which leaves with it
                other.update({key: other.pop(key, value) for key, value in one.items()})
            count += 1
        assert json.dumps(was) == json.dumps(now)
    return count


def _check_stand_in(was: Any, now: Any) -> None:
    if isinstance(now, dict):  # a block of text replaces a block of media
        assert isinstance(was, dict)
        assert now.get("type", "text").endswith("text")
        now = now["text"]
    assert isinstance(now, str)
    assert now.startswith("[[extracted-")


_TIME = re.compile(rb'(?<="timestamp": ")[^"]+')


def written_lately(content: bytes) -> bytes:
    """The same lines, the newest of them written a minute ago."""

    def moment(found: re.Match[bytes]) -> datetime:
        return datetime.fromisoformat(found[0].decode())

    shift = datetime.now(UTC) - timedelta(minutes=1) - max(map(moment, _TIME.finditer(content)))
    return _TIME.sub(lambda found: (moment(found) + shift).isoformat().encode(), content)


def without_restored(content: bytes) -> bytes:
    """Remove the mark of a restoration from a value."""
    return re.sub(rb',"_restored":"[^"]*"', b"", content)

"""Sessions and a store in memory: plans are carried out as a commit would, without files."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

from bsd.core.config import PruningConfig
from bsd.planning.extract import plan_extraction
from bsd.planning.plan import Plan
from bsd.planning.restore import Restored, plan_restore, plan_restore_all
from bsd.store.contents import StoredPlace
from bsd.store.originals import FileSpan, Missing, StoredOriginal, digest
from bsd.transcripts import splice
from bsd.transcripts.agents.entry import RESTORED
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.agents.openclaw.format import OPENCLAW
from bsd.transcripts.reader import BytesTranscript

NOW = 1_800_000_000.0
DATA = Path(__file__).parents[3] / "shared" / "data"


def data(name: str) -> bytes:
    """A recorded transcript; skip the test where none is available."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"no {name} here")
    return path.read_bytes()


def config(**fields: Any) -> PruningConfig:
    return PruningConfig.from_json(fields)


@dataclass
class Shelf:
    """A session's store; tests may remove or damage its files."""

    files: dict[str, bytes] = field(default_factory=dict)
    entries: dict[str, str] = field(default_factory=dict)
    used_again: list[str] = field(default_factory=list)

    def own(self, ref: str, hash: str) -> bytes | Missing:
        return self.load(ref, hash)

    def load(self, ref: str, hash: str) -> bytes | Missing:
        if ref not in self.files:
            return Missing.GONE
        line = self.files[ref]
        return line if hash == f"sha256:{sha256(line).hexdigest()}" else Missing.CORRUPT

    def trouble(self) -> str | None:
        return None

    def held(self, ref: str, hash: str) -> str | None:
        return None if isinstance(self.own(ref, hash), Missing) else ref

    def free_ref(self, ref: str, used: Container[str]) -> str:
        names = chain([ref], (f"{ref}-{number}" for number in count(2)))
        return next(name for name in names if name not in used and not self.taken(name))

    def find(self, entry_id: str) -> tuple[str, str] | None:
        ref = self.entries.get(entry_id)
        if ref is None or ref not in self.files:
            return None
        return ref, f"sha256:{sha256(self.files[ref]).hexdigest()}"

    def of_entry(self, entry_id: str) -> list[StoredPlace]:
        found = self.find(entry_id)
        return [StoredPlace(Path("store"), *found, "", 0)] if found else []

    def is_own(self, _: StoredPlace) -> bool:
        return True

    def ids_of(self, _: StoredPlace) -> frozenset[str]:
        return frozenset()

    def taken(self, ref: str) -> bool:
        return ref in self.files

    def keep(self, keep: StoredOriginal, session: bytes) -> None:
        self.entries[keep.entry_id] = keep.ref
        if keep.line is None:
            self.used_again.append(keep.ref)
        else:
            line = keep.line
            if isinstance(line, FileSpan):
                line = session[line.offset : line.offset + line.length]
            assert keep.ref not in self.files
            self.files[keep.ref] = line
        stored = self.files[keep.ref]
        assert keep.hash == f"sha256:{sha256(stored).hexdigest()}"
        assert keep.size == len(stored)
        assert len(keep.sizes) == len(keep.keys)


class Session:
    """A transcript on which plans are carried out."""

    def __init__(self, raw: bytes, fmt: TranscriptFormat = OPENCLAW) -> None:
        self.raw = raw
        self.fmt = fmt
        self.shelf = Shelf()
        self.restored: Mapping[str, float] = {}  # by notes, in epoch milliseconds

    @property
    def source(self) -> BytesTranscript:
        return BytesTranscript(self.raw)

    def entry(self, index: int) -> Any:
        return json.loads(_lines(self.raw)[index])

    def carry_out(self, plan: Plan) -> Plan:
        before, pieces, done = self.raw, [], 0
        for keep in plan.keeps:
            self.shelf.keep(keep, before)
        for edit in plan.edits:
            assert edit.offset >= done
            pieces += [before[done : edit.offset], edit.new]
            done = edit.offset + edit.length
            assert edit.was in {None, digest(before[edit.offset : done])}
        self.raw = b"".join([*pieces, before[done:]])
        assert plan.report.bytes_before == len(before)
        if plan.edits:
            assert plan.report.bytes_after == len(self.raw)
        changed = set(_lines(before)) - set(_lines(self.raw))
        assert len(changed) <= len(plan.edits)
        return plan

    def extract(self, now: float = NOW, **fields: Any) -> Plan:
        return self.carry_out(
            plan_extraction(
                self.source, self.fmt, config(**fields), now, self.shelf, restored=self.restored
            )
        )

    def restore(self, entry: str, keys: Iterable[str] | None = None, now: float = NOW) -> Restored:
        wanted = None if keys is None else list(keys)
        plan, answer = plan_restore(self.source, self.fmt, entry, wanted, now, self.shelf)
        self.carry_out(plan)
        return answer

    def restore_all(self, now: float = NOW) -> tuple[Restored, ...]:
        answers: tuple[Restored, ...] = ()
        complete = False
        while not complete:
            plan, some = plan_restore_all(self.source, self.fmt, now, self.shelf)
            self.carry_out(plan)
            answers, complete = answers + some, plan.complete
        return answers


def _lines(raw: bytes) -> list[bytes]:
    return [line.raw for line in BytesTranscript(raw).lines()]


def without_restored(raw: bytes) -> bytes:
    """The session with every `_restored` removed."""
    needle = f'"{RESTORED}"'.encode()
    return b"".join(
        splice.edit(line, remove=[(RESTORED,)]) if needle in line else line for line in _lines(raw)
    )

"""Plans the return of extracted values: one entry's, by key, or everything in a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bsd.formats.base import Format
from bsd.formats.marker import MARKER, RESTORED, Marker
from bsd.foundation.errors import Conflict, Invalid
from bsd.foundation.times import iso_utc
from bsd.foundation.value_path import ValuePath
from bsd.store.extracted import Missing, Stored
from bsd.store.history import Touched
from bsd.store.lasting import Noting, Stamp
from bsd.surgery.kept import Original, Return, is_away, member_of, nothing_away, paths_of
from bsd.surgery.locate import Located, locate
from bsd.surgery.plan import Plan, Report, Source
from bsd.transcript.change import Edit
from bsd.transcript.reader import parse_entry
from bsd.transcript.splice import SpliceError, encode_string

BUDGET = 64 * 1024 * 1024  # bytes of new lines in one plan

SUGGESTION = (
    "This entry was previously restored. If you need to keep this content long-term, "
    "consider setting _extractable: false on the entry."
)

# What stands in an answer for content that cannot be had.
UNAVAILABLE = {
    Missing.GONE: "[Content unavailable - extracted file missing]",
    Missing.CORRUPT: "[Content unavailable - extracted file corrupted]",
}
_NOT_IN_FILE = "[Content unavailable - not in the extracted file]"
_LEFT_ALONE = "[Content unavailable - the line cannot be edited: {}]"


@dataclass(frozen=True, slots=True)
class RestoreAnswer:
    """What became of one entry's values (SPEC §3 "Restore")."""

    entry_id: str
    index: int  # 0-based line number
    ref: str  # of the stored file
    keys_restored: tuple[str, ...] = ()
    sizes_bytes: dict[str, int] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)  # key → what to show instead
    changed: tuple[str, ...] = ()  # keys somebody has overwritten since: left as they are
    previous_restored_at: str | None = None
    missing: Missing | None = None  # what is wrong with the stored file, for log and audit
    stamp: Stamp | None = None  # the `_restored` that it sets

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the contract; those that say nothing are left out."""
        answer: dict[str, Any] = {
            "restored": bool(self.keys_restored),
            "entry_id": self.entry_id,
            "keys_restored": list(self.keys_restored),
            "sizes_bytes": dict(self.sizes_bytes),
        }
        if self.unavailable:
            answer["unavailable"] = dict(self.unavailable)
        if self.changed:
            answer["changed"] = list(self.changed)
        if self.previous_restored_at is not None:
            answer["previous_restored_at"] = self.previous_restored_at
            answer["suggestion"] = SUGGESTION
        return answer


def plan_restore(
    source: Source,
    fmt: Format,
    entry: str,
    keys: Sequence[str] | None,
    now: float,
    stored: Stored,
) -> tuple[Plan, RestoreAnswer]:
    """Plan the return of one entry's values; no `keys` means all.

    Raises NotFound, Conflict if nothing of the entry is away, Invalid for unknown keys.
    """
    located = locate(source, fmt, entry)
    marked = _Marked.of(located)
    if marked is None or not marked.away:
        raise _nothing_away(located, marked)
    wanted = marked.matching(keys) if keys else marked.keys
    answer, edit = _restore(marked, wanted, fmt, now, stored)
    return _plan(source, [edit] if edit else [], [answer]), answer


def plan_restore_all(
    source: Source,
    fmt: Format,
    now: float,
    stored: Stored,
    budget_bytes: int = BUDGET,
    progress: Callable[[int], None] | None = None,
) -> tuple[Plan, tuple[RestoreAnswer, ...]]:
    """Plan the return of everything that is away; the answers are those of marked entries."""
    edits: list[Edit] = []
    answers: list[RestoreAnswer] = []
    new_bytes = 0
    complete = True
    for located in _marked_lines(source, fmt):
        if new_bytes >= budget_bytes:
            complete = False
            break
        marked = _Marked.of(located)
        if marked is None:
            continue
        answer, edit = _restore_or_say_why(marked, fmt, now, stored)
        answers.append(answer)
        if edit:
            edits.append(edit)
            new_bytes += len(edit.new)
        if progress:
            progress(located.line.offset + len(located.line.raw))
    return _plan(source, edits, answers, complete=complete), tuple(answers)


@dataclass(frozen=True, slots=True)
class _Marked:
    """An entry with our marker."""

    located: Located
    marker: Marker
    paths: dict[str, ValuePath]  # of the marker's keys that are paths
    away: frozenset[str]  # keys whose placeholder still stands

    @classmethod
    def of(cls, located: Located) -> _Marked | None:
        marker = Marker.of(located.entry)
        if marker is None or located.facts.id is None:
            return None
        entry_id = located.facts.id
        paths = paths_of(marker.keys)
        away = (key for key, path in paths.items() if is_away(located.entry, path, entry_id))
        return cls(located, marker, paths, frozenset(away))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.paths)

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the keys that these name, whole or by a segment; raises Invalid."""
        names = list(names)
        unknown = [name for name in names if not any(self._is(key, name) for key in self.paths)]
        if unknown:
            raise Invalid(
                f"entry {self.located.facts.id} has no extracted key {', '.join(unknown)}",
                hint=f"its keys: {', '.join(self.keys)}",
            )
        return tuple(key for key in self.paths if any(self._is(key, name) for name in names))

    def _is(self, key: str, name: str) -> bool:
        """Whether a name means a key: `message.content[2].text`, `content`, `content[2]`."""
        steps = self.paths[key]
        numbered = (f"{one}[{two}]" for one, two in pairwise(steps) if isinstance(two, int))
        return name == key or name in steps or name in numbered


def _nothing_away(located: Located, marked: _Marked | None) -> Conflict:
    if marked is None and RESTORED in located.entry:
        return Conflict(
            "Entry was previously restored but content is not currently extracted. If you need "
            "to keep this content long-term, consider setting _extractable: false."
        )
    if marked is None:
        return nothing_away()
    return nothing_away(
        f"changed since extraction: {', '.join(marked.keys)}; `bsd verify` lists such entries"
    )


def _restore_or_say_why(
    marked: _Marked, fmt: Format, now: float, stored: Stored
) -> tuple[RestoreAnswer, Edit | None]:
    """Restore all of one entry among many; a line that cannot be edited stops no other."""
    try:
        return _restore(marked, marked.keys, fmt, now, stored)
    except SpliceError as error:
        away = {key: _LEFT_ALONE.format(error) for key in marked.keys if key in marked.away}
        return _answer(marked, unavailable=away), None


def _restore(
    marked: _Marked, wanted: tuple[str, ...], fmt: Format, now: float, stored: Stored
) -> tuple[RestoreAnswer, Edit | None]:
    """Plan the return of some keys; one that cannot come back keeps placeholder and marker."""
    changed = tuple(key for key in wanted if key not in marked.away)
    wanted = tuple(key for key in wanted if key in marked.away)
    if not wanted:
        return _answer(marked, changed=changed), None
    stored_line = stored.load(marked.marker.ref, marked.marker.hash)
    original = None if isinstance(stored_line, Missing) else Original.of(stored_line)
    if original is None:
        missing = stored_line if isinstance(stored_line, Missing) else Missing.CORRUPT
        lost = dict.fromkeys(wanted, UNAVAILABLE[missing])
        return _answer(marked, unavailable=lost, changed=changed, missing=missing), None

    back = Return.of(marked.located.entry, original, fmt, [marked.paths[key] for key in wanted])
    restored = tuple(key for key in wanted if marked.paths[key] in back.replace)
    answer = _answer(
        marked,
        keys_restored=restored,
        sizes_bytes={key: back.sizes[marked.paths[key]] for key in restored},
        unavailable={key: _NOT_IN_FILE for key in wanted if key not in restored},
        changed=changed,
        stamp=_stamp(marked, original, now) if restored else None,
    )
    return answer, _edit(marked, back, restored, now) if restored else None


def _stamp(marked: _Marked, original: Original, now: float) -> Stamp:
    """What the new `_restored` takes the place of."""
    located = marked.located
    return Stamp(
        located.facts.id or "",
        encode_string(iso_utc(now)),
        present=member_of(located.line.raw, located.entry, RESTORED),
        original=member_of(original.raw, original.entry, RESTORED),
    )


def _edit(marked: _Marked, back: Return, restored: tuple[str, ...], now: float) -> Edit:
    line, marker = marked.located.line, marked.marker
    remaining = tuple(key for key in marker.keys if key in marked.away and key not in restored)
    put = {RESTORED: encode_string(iso_utc(now))}
    if remaining:
        left = Marker(marker.ref, marker.hash, marker.size, remaining, marker.at)
        new = back.apply(line.raw, put={MARKER: left.to_json(), **put})
    else:
        new = back.apply(line.raw, remove=[(MARKER,)], put=put)
    return Edit(line.offset, len(line.raw), new)


def _answer(marked: _Marked, **what: Any) -> RestoreAnswer:
    previous = marked.located.entry.get(RESTORED)
    return RestoreAnswer(
        entry_id=marked.located.facts.id or "",
        index=marked.located.line.index,
        ref=marked.marker.ref,
        previous_restored_at=None if previous is None else str(previous),
        **what,
    )


def _marked_lines(source: Source, fmt: Format) -> Iterable[Located]:
    # Markers are written by bsd, so their name stands in the line as it is spelled here.
    needle = f'"{MARKER}"'.encode()
    for line in source.lines():
        if needle in line.raw and (entry := parse_entry(line.raw)) is not None:
            facts = fmt.facts(entry)
            if not facts.is_header:
                yield Located(line, entry, facts)


def _plan(
    source: Source, edits: list[Edit], answers: list[RestoreAnswer], *, complete: bool = True
) -> Plan:
    size = source.identity.size
    report = Report(
        "restore",
        entries=len(edits),
        values=sum(len(answer.keys_restored) for answer in answers),
        bytes_before=size,
        bytes_after=size + sum(len(edit.new) - edit.length for edit in edits),
    )
    touched = tuple(Touched(one.index, one.entry_id) for one in answers if one.keys_restored)
    noting = Noting(stamps=tuple(one.stamp for one in answers if one.stamp))
    return Plan(
        source.identity, tuple(edits), report, touched=touched, complete=complete, noting=noting
    )

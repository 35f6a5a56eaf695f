"""Plans the return of markers that a program has dropped, while the placeholders stayed."""

from __future__ import annotations

from bsd.agents.dialect import Format
from bsd.agents.marker import MARKER, Marker
from bsd.store.extracted import Stored
from bsd.store.history import TouchedLine
from bsd.store.markers import NEEDLES, Markers
from bsd.surgery.plan import Plan, Report, Source
from bsd.text.change import Edit
from bsd.text.reader import parse_entry
from bsd.text.splice import SpliceError, edit


def plan_remark(source: Source, fmt: Format, stored: Stored) -> tuple[Plan, tuple[str, ...]]:
    """Plan a marker for each entry whose placeholders stand alone, and whose content is stored.

    The answer names these entries, by id or `#line`. One that several stored lines are away from
    gets none: a marker names one, and restoring finds them all the same.
    """
    markers = Markers(source, fmt, stored)
    edits: list[Edit] = []
    touched: list[TouchedLine] = []
    for line in source.lines():
        entry = parse_entry(line.raw) if NEEDLES[1] in line.raw else None
        if entry is None or Marker.of(entry) is not None:  # one that says nothing is lost, too
            continue
        facts = fmt.facts(entry)
        found = markers.of(entry, facts)
        if len(found) != 1 or facts.is_header:
            continue
        try:
            new = edit(line.raw, put={MARKER: found[0].to_json()})
        except SpliceError:  # a line that is never edited
            continue
        edits.append(Edit(line.offset, len(line.raw), new))
        touched.append(TouchedLine(line.index, facts.id))
    size = source.identity.size
    report = Report(
        "remark",
        entries=len(edits),
        bytes_before=size,
        bytes_after=size + sum(len(one.new) - one.length for one in edits),
    )
    names = tuple(one.entry_id or f"#{one.index}" for one in touched)
    return Plan(source.identity, tuple(edits), report, touched=tuple(touched)), names

"""The new bytes of a line that a redaction changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bsd.agents.dialect import Format, ToolCall
from bsd.agents.entry import REDACTED, Entry, block_at
from bsd.agents.marker import MARKER, Marker
from bsd.foundation.errors import Conflict
from bsd.foundation.json_text import is_too_large
from bsd.foundation.value_path import ValuePath, paths_of
from bsd.store.extracted import Missing, Stored
from bsd.store.markers import away_paths
from bsd.surgery.content import put_texts
from bsd.surgery.conversation import Seen
from bsd.surgery.discard import content_values, texts_for
from bsd.surgery.kept import Return, original_of
from bsd.surgery.rules import own_tool
from bsd.text.elements import prepend_elements, remove_elements
from bsd.text.reader import parse_kept
from bsd.text.splice import edit, encode_string

# What a marked call still says of itself.
_KEPT_ARGUMENTS = frozenset(("action", "entry", "entry_id"))


class CannotChange(Conflict):
    """The line cannot be changed without losing something."""


@dataclass(slots=True)
class LineChange:
    """What is to become of one line."""

    marked: list[ToolCall] = field(default_factory=list)  # calls whose arguments are cut
    note: str | None = None  # what the texts become
    redacted: bool = False
    new_parent: str | None = None
    reparented: bool = False
    content: ValuePath = ()  # where the blocks are that go or come
    blocks_out: set[int] = field(default_factory=set)
    blocks_in: list[bytes] = field(default_factory=list)  # in front of the others

    @property
    def moves_blocks(self) -> bool:
        return bool(self.blocks_out or self.blocks_in)

    def apply(self, seen: Seen, fmt: Format, stored: Stored) -> bytes:
        """Make the new line; raises CannotChange, SpliceError."""
        raw, entry = seen.line.raw, seen.entry
        if self.moves_blocks and self._shifts_extracted(entry):
            raw = inline_again(seen, fmt, stored)
            entry = parse_kept(raw) or {}
        seen = Seen(seen.line, entry, fmt.facts(entry))
        raw = self._put_note(raw, seen, fmt)
        for call in self.marked:
            raw = _cut_arguments(raw, entry, call)
        if self.reparented and fmt.parent_key:
            parent = b"null" if self.new_parent is None else encode_string(self.new_parent)
            raw = edit(raw, replace={(fmt.parent_key,): parent})
        if self.moves_blocks:
            raw = self._move_blocks(raw, entry)
        return raw

    def _put_note(self, raw: bytes, seen: Seen, fmt: Format) -> bytes:
        put = {REDACTED: b"true"} if self.redacted else {}
        values = content_values(seen, fmt) if self.note is not None else []
        if not values:
            return edit(raw, put=put) if put else raw
        note = self.note or ""
        return put_texts(raw, seen.entry, texts_for(values, note, note), put)

    def _move_blocks(self, raw: bytes, entry: Entry) -> bytes:
        blocks = block_at(entry, self.content)
        if not isinstance(blocks, list):
            raise CannotChange("its content is no list of blocks")
        raw = remove_elements(raw, self.content, len(blocks), self.blocks_out)
        empty = len(blocks) == len(self.blocks_out)
        return prepend_elements(raw, self.content, self.blocks_in, empty=empty)

    def _shifts_extracted(self, entry: Entry) -> bool:
        """Whether a block moves from which something is in the store, under its old number."""
        first = 0 if self.blocks_in else min(self.blocks_out)
        depth = len(self.content)
        marker = Marker.of(entry)
        for path in paths_of(marker.keys).values() if marker else ():
            if path[:depth] == self.content and len(path) > depth:
                at = path[depth]
                if isinstance(at, int) and at >= first:
                    return True
        return False


def inline_again(seen: Seen, fmt: Format, stored: Stored) -> bytes:
    """The line with everything back that was taken out of it; raises CannotChange."""
    marker, entry_id = Marker.of(seen.entry), seen.facts.id
    if marker is None or entry_id is None:
        return seen.line.raw
    original = original_of(seen.line.raw, seen.entry, marker, fmt, stored)
    if isinstance(original, Missing):
        raise CannotChange("what was extracted from it is no longer stored")
    paths = list(away_paths(seen.entry, marker).values())
    back = Return.of(seen.entry, original, fmt, paths)
    if len(back.replace) < len(paths):
        raise CannotChange("not all that was extracted from it is stored")
    return back.apply(seen.line.raw, remove=[(MARKER,)])


def _cut_arguments(raw: bytes, entry: Entry, call: ToolCall) -> bytes:
    """Leave action and entry; what somebody else's tool was given stays.

    Patterns go, too: they quote what was to go. A tool called `context` may be another's, but
    a call of one is only marked when it was ours.
    """
    path = call.arguments
    if path is None or not (own_tool(call.name) or call.name.rpartition("__")[2] == "context"):
        return raw
    arguments = block_at(entry, path)
    if isinstance(arguments, dict):
        gone = [(*path, key) for key in arguments if key not in _KEPT_ARGUMENTS]
        return edit(raw, remove=gone) if gone else raw
    if isinstance(arguments, str):
        return edit(raw, replace={path: encode_string(_cut_text(arguments))})
    return raw


def _cut_text(arguments: str) -> str:
    """Arguments that stand as JSON in a text; what is none says nothing."""
    if is_too_large(arguments.encode("utf-8", "surrogatepass")):
        return "{}"
    try:
        document: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    kept: Sequence[tuple[str, Any]] = ()
    if isinstance(document, dict):
        kept = [(key, value) for key, value in document.items() if key in _KEPT_ARGUMENTS]
        if len(kept) == len(document):
            return arguments
    return json.dumps(dict(kept), separators=(",", ":"))

"""Plans to replace a text, such as a password, everywhere in a session.

The text is replaced in inline values and in extracted originals. An entry with such an original
gets a new original without the text, and a marker that names it. Some places cannot be changed, and
the answer lists them with the reason: ids and other members that hold the session together, the
header, and text that a provider's signature proves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from bsd.planning.context_window import Binds, never
from bsd.planning.conversation import Conversation
from bsd.planning.edit import changed_tie, is_structure
from bsd.planning.line_length import as_long
from bsd.planning.locate import Located, entries, name_of
from bsd.planning.plan import Plan
from bsd.store.history import TouchedLine
from bsd.store.markers import stored_line
from bsd.store.originals import Missing, OriginalStore, StoredOriginal, digest
from bsd.transcripts.agents.entry import MARKER, Entry, Marker, ends_in_placeholder, placeholder
from bsd.transcripts.agents.format import TranscriptFormat
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Line, Transcript, parse_kept
from bsd.transcripts.spans import SpliceError, ValuePath, format_path, paths_of, value_at
from bsd.transcripts.splice import edit, encode_string

_DEEPEST = 200
_SHORTEST_CUT = 6  # characters
# Endings of the keys under which a provider signs the text of a block.
_PROOFS = ("ignature", "encrypted_content")
# Spellings of line ends and tabs in a text that contains JSON, at any depth of nesting.
_WRITTEN = {"\n": r"\r?\n|r\\*n|[nr]", "\r": r"\r|r", "\t": r"\t|t"}
_CODE = re.compile(rb"\\+u00([2-7][0-9A-Fa-f])")


@dataclass(frozen=True)
class SecretText:
    """A text to remove everywhere, and its replacement. Its `repr` shows neither."""

    text: str
    replacement: str

    def __repr__(self) -> str:
        return f"SecretText({len(self.text)} characters)"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The text as it is and in all its JSON spellings: any character may be escaped.

        Rules find secrets in texts from which backslashes were removed, so backslashes may precede
        any character.
        """
        first, *others = list(self.text.replace("\\", ""))
        return re.compile(
            _written(first, r"\\") + "".join(r"\\*" + _written(each) for each in others)
        )

    @cached_property
    def needle(self) -> bytes:
        """The longest piece of the text that JSON and plain text spell alike."""
        pieces = re.split(r"[^!-~]|[\"'\\/]", self.text)
        return max(pieces, key=len).encode()

    def may_be_in(self, data: bytes) -> bool:
        """Return False if a line, or any text, certainly does not contain the secret."""
        if self.needle in data:
            return True
        if b"\\" not in data:
            return False
        if b"\\u00" in data:
            data = _CODE.sub(lambda code: bytes.fromhex(code[1].decode()), data)
        return self.needle in data.translate(None, b"\\")

    def is_cut_by(self, piece: bytes) -> bool:
        """Return whether a piece cut out of a line may begin or end within the secret, or both.

        Fewer than `_SHORTEST_CUT` characters of the secret do not count.
        """
        needle, shortest = self.needle, _SHORTEST_CUT
        if len(piece) >= shortest and piece in needle:
            return True
        cuts = range(shortest, min(len(needle), len(piece)) + 1)
        return any(piece.startswith(needle[-n:]) or piece.endswith(needle[:n]) for n in cuts)

    def is_in(self, data: bytes) -> bool:
        """Return whether a line, or any text, contains the secret."""
        if not self.may_be_in(data):
            return False
        return self.pattern.search(data.decode("utf-8", "replace")) is not None

    def texts(self, value: Any) -> Iterator[tuple[ValuePath, str]]:
        """Yield the path and the text of each text in an entry that contains the secret."""
        for path, text in _texts(value, (), _DEEPEST):
            if self.pattern.search(text):
                yield path, text

    def replaced(self, text: str) -> str:
        """Return a text with the secret replaced."""
        return self.pattern.sub(lambda _: self.replacement, text)


@cache
def _written(character: str, before: str = "") -> str:
    """Return a pattern for a character as it is or, after `before`, as a JSON escape."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    code = r"\\*".join(
        "u" + "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in unit)
        for unit in re.findall("....", units)
    )
    return f"(?:{_WRITTEN.get(character) or re.escape(character)}|{before}{code})"


def _texts(value: Any, path: ValuePath, depth: int) -> Iterator[tuple[ValuePath, str]]:
    if isinstance(value, str):
        yield path, value
    elif depth and isinstance(value, dict):
        for key, member in value.items():
            yield from _texts(member, (*path, key), depth - 1)
    elif depth and isinstance(value, list):
        for number, member in enumerate(value):
            yield from _texts(member, (*path, number), depth - 1)


@dataclass(frozen=True, slots=True)
class LeftInPlace:
    """A place from which a secret cannot be removed, and the reason."""

    session: str
    entry: str  # its id, or `#` and its line number; empty: the session as a whole
    why: str


@dataclass(slots=True)
class TextRedactor:
    """Makes new lines without a secret, for one session.

    Attributes:
        tainted: hashes of the stored lines, of any session, that contain the secret.
        stored: the session's store.
        keeps: new originals, to be stored before their lines are written.
        forgotten: entries whose extracted values are no longer stored.
        left: places where the secret stays.
        bound: changed entries that a later signature covers.
        stay: hashes of stored lines from which the secret cannot be removed, and which stay as they
            are.
        values: number of changed values.
        is_final: record no more results and make no more originals; copies of the session get the
            same lines as the session.
    """

    session: str
    secret: SecretText
    format: TranscriptFormat
    stored: OriginalStore
    tainted: frozenset[str] = frozenset()
    keeps: list[StoredOriginal] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    left: list[LeftInPlace] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    values: int = 0
    is_final: bool = False
    stay: set[str] = field(default_factory=set)
    _new: dict[str, StoredOriginal] = field(default_factory=dict)  # by hash of the old one

    def may_concern(self, raw: bytes) -> bool:
        """Return False for a line that certainly needs no change."""
        return self.secret.may_be_in(raw) or any(
            hash_.encode() in raw for hash_ in self.tainted if MARKER.encode() in raw
        )

    def needs_new(self, raw: bytes) -> bool:
        """Return whether a line names a stored line with the secret that has no replacement yet."""
        return any(hash_.encode() in raw for hash_ in self.tainted - self._new.keys())

    def line(self, line: Line) -> bytes:
        """Return a line without the secret, as far as possible; `left` lists the rest."""
        located = Located.of(line, self.format)
        if located is None:
            if self.secret.is_in(line.raw):
                self._leave(name_of(None, line.index), "the line cannot be read as JSON")
            return line.raw
        if located.info.is_header:
            if self.secret.is_in(line.raw):
                self._leave(located.name, "it is the header of the session")
            return line.raw
        new = self._without(located, line.raw, located.entry)
        marker = Marker.of(located.entry)
        if marker is not None and marker.hash in self.tainted:
            new = self._with_new_original(located, new, marker)
        if new != line.raw and self.secret.is_in(new):
            self._leave(located.name, "it is in the name of a member, or in a number")
        return new

    def _as_long(self, raw: bytes, new: bytes) -> bytes:
        return as_long(raw, new) if self.format.keeps_length else new

    def _leave(self, entry: str, why: str) -> None:
        place = LeftInPlace(self.session, entry, why)
        if not self.is_final and place not in self.left:
            self.left.append(place)

    def _without(self, located: Located, raw: bytes, entry: Entry) -> bytes:
        """Return a line, or a stored original, with the secret replaced in its texts."""
        changes: dict[ValuePath, bytes] = {}
        removed: list[ValuePath] = []
        found = list(self.secret.texts(entry))
        if not found:
            if self.secret.is_in(raw):
                self._leave(located.name, "it is in the name of a member, or in a number")
            return raw
        values = {value.path: value for value in self.format.values(entry, 1)}
        for path, text in found:
            value = values.get(path)
            if why := self._why_it_stays(path, entry, removes=bool(value and value.removes)):
                self._leave(located.name, why)
                continue
            name = ends_in_placeholder(text)
            end = "" if name is None else placeholder(name)
            replaced = self.secret.replaced(text.removesuffix(end)) + end
            if replaced == text:
                self._leave(located.name, "it is in the placeholder of extracted content")
                continue
            changes[path] = encode_string(replaced)
            removed += value.removes if value else ()
        if not changes:
            return raw
        try:
            new = self._as_long(raw, edit(raw, replace=changes, remove=removed))
        except SpliceError as error:
            self._leave(located.name, f"the line cannot be edited: {error.message}")
            return raw
        after = parse_kept(new)
        tie = (
            None if after is None else changed_tie(self.format.info(entry), self.format.info(after))
        )
        if after is None or tie:
            self._leave(located.name, f"the change would break the entry's {tie or 'line'}")
            return raw
        if not self.is_final:
            self.values += len(changes)
        return new

    def _why_it_stays(self, path: ValuePath, entry: Entry, *, removes: bool) -> str | None:
        if is_structure(path, self.format):
            return f"{format_path(path)} holds the session together"
        holder = value_at(entry, path[:-1])
        is_signed = isinstance(holder, dict) and any(
            member for key, member in holder.items() if key.endswith(_PROOFS)
        )
        if is_signed and not removes:
            return f"{format_path(path)} is signed: its provider refuses a changed text"
        return None

    def _with_new_original(self, located: Located, raw: bytes, marker: Marker) -> bytes:
        """Return a line whose marker names a new original without the secret."""
        new = self._new.get(marker.hash) or self._new_original(located, marker)
        if marker.hash in self.stay:
            return raw
        if new is None:
            if not self.is_final:
                self.forgotten.append(located.name)
            return raw
        entry = parse_kept(raw) or {}
        written = Marker(new.ref, new.hash, new.size, marker.keys, marker.at)
        original = parse_kept(new.line) if isinstance(new.line, bytes) else None
        heads: dict[ValuePath, bytes] = {}
        for path in paths_of(marker.keys).values():
            # A kept beginning before the placeholder may contain the start of the secret.
            text, whole = value_at(entry, path), value_at(original, path)
            name = ends_in_placeholder(text) if isinstance(text, str) else None
            if name is not None and isinstance(whole, str):
                head = text.removesuffix(placeholder(name))
                if not whole.startswith(head):
                    heads[path] = encode_string(whole[: len(head)] + placeholder(name))
        try:
            return self._as_long(raw, edit(raw, replace=heads, put={MARKER: written.to_json()}))
        except SpliceError as error:
            self._leave(located.name, f"the line cannot be edited: {error.message}")
            return raw

    def _new_original(self, located: Located, marker: Marker) -> StoredOriginal | None:
        """Return an entry's original without the secret; None if it is missing or unchangeable."""
        if self.is_final:
            return None
        raw = located.line.raw
        was = stored_line(raw, located.entry, marker, self.format, self.stored)
        if isinstance(was, Missing):
            return None
        entry = parse_kept(was)
        line = was if entry is None else self._without(located, was, entry)
        if self.secret.is_in(line):
            self._leave(located.name, "it is in the extracted content")
        if line == was:
            self.stay.add(marker.hash)
            return None
        used = {keep.ref for keep in self.keeps}
        ref = self.stored.free_ref(marker.ref, used)
        kind = ref.partition("_")[2].partition("-")[0]
        index, id_ = located.line.index, located.info.id or ""
        keep = StoredOriginal(ref, id_, index, kind, digest(line), len(line), marker.keys, (), line)
        self.keeps.append(keep)
        self._new[marker.hash] = keep
        return keep


def plan_text_redaction(source: Transcript, redactor: TextRedactor, binds: Binds = never) -> Plan:
    """Plan to replace a secret in all lines of a session.

    Changed entries that a signature covers are added to `redactor.bound`. Raises the errors of
    reading the session.

    Args:
        binds: tells whether the signatures of a model cover the entries before them.
    """
    edits, touched = [], []
    for line in source.lines():
        if redactor.may_concern(line.raw):
            new = redactor.line(line)
            if new != line.raw:
                located = Located.of(line, redactor.format)
                edits.append(Edit(line.offset, len(line.raw), new))
                touched.append(TouchedLine(line.index, located.info.id if located else None))
    if touched:
        conversation = Conversation(redactor.format, binds=binds)
        for seen in entries(source.lines(), redactor.format):
            conversation.follow(seen)
        bound = (each for each in touched if conversation.is_bound(each.index))
        redactor.bound += [name_of(each.entry_id, each.index) for each in bound]
    plan = Plan.of("redact_text", source, redactor.format, edits, touched, values=redactor.values)
    return replace(plan, keeps=tuple(redactor.keeps), keeps_former=False)

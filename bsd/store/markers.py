"""The markers of a session's entries, including markers that a program has dropped.

Some programs rewrite lines without the members that they do not know: Codex when it migrates a
thread, old versions of Claude Code when they resume a session (also under new ids). Placeholders
then stand without `_extracted`. Such a placeholder stands for a stored line of the entry that it
names, if its own entry is proved to be a copy of that line (`provenance`); otherwise it is text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from sys import maxsize

from bsd.store.contents import StoredPlace
from bsd.store.originals import Missing, OriginalStore, digest
from bsd.store.provenance import Proof, is_marked_copy, proof_of_copy
from bsd.transcripts.agents.entry import (
    MARKER,
    RESTORED,
    Entry,
    Marker,
    ends_in_placeholder,
    placeholder,
    standing_at,
)
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat
from bsd.transcripts.reader import Transcript, parse_entry, parse_kept
from bsd.transcripts.spans import ValuePath, format_path, is_present, paths_of, value_at
from bsd.transcripts.splice import SpliceError, edit, find, with_length

# A line without these bytes holds no marker and no placeholder.
NEEDLES = (b'"_extracted"', b"[[extracted-")


class Markers:
    """The markers of a session, while it is open."""

    def __init__(self, source: Transcript, fmt: TranscriptFormat, stored: OriginalStore) -> None:
        self._source = source
        self._fmt = fmt
        self._stored = stored

    def of(self, entry: Entry, info: EntryInfo, index: int, *, copied: bool = True) -> list[Marker]:
        """Return the entry's marker and those that a program has dropped; empty if there are none.

        A marker names one stored line. There are several only if a program merges two entries into
        one, copies values of several entries into one, or drops a marker before more values are
        extracted.

        Args:
            entry: the entry as it stands in the session.
            info: the properties of the entry, as its format reads them.
            index: its line number, 0-based.
            copied: include markers for single values that a program copied from other entries.
        """
        own = Marker.of(entry)
        named = set(away_paths(entry, own).values()) if own else set()
        loose: dict[str, list[ValuePath]] = {}
        for path, name in loose_placeholders(entry, self._fmt).items():
            if path not in named and path[:-1] not in named:
                loose.setdefault(name, []).append(path)
        lost = [self._lost(entry, info, index, name, paths) for name, paths in loose.items()]
        for name, paths in loose.items():
            if copied and name != info.id:
                lost += self._of_copied_values(entry, name, paths)
        return [marker for marker in (own, *lost) if marker is not None]

    def _of_copied_values(
        self, entry: Entry, name: str, paths: list[ValuePath]
    ) -> Iterator[Marker]:
        """Yield the markers of the originals from which a program copied single values.

        A value with the same name in both is proved to be the same (`TranscriptFormat.value_name`).
        """
        wanted = [path for path in paths if self._fmt.value_name(entry, path) is not None]
        for place in self._stored.of_entry(name) if wanted else ():
            line = self._stored.load(place.ref, place.hash)
            original = None if isinstance(line, Missing) else parse_kept(line)
            if original is None or isinstance(line, Missing):
                continue
            if self._fmt.info(original).id != name:
                continue
            found = dict(_copied_keys(entry, original, self._fmt, name, wanted))
            if found:
                keys = tuple(map(format_path, found.values()))
                yield Marker(place.ref, place.hash, len(line), keys, place.at)
                wanted = [path for path in wanted if path not in found]

    def _lost(
        self, entry: Entry, info: EntryInfo, index: int, name: str, paths: list[ValuePath]
    ) -> Marker | None:
        """Return the dropped marker that named the original of these placeholders, if any."""
        found: list[tuple[int, Marker]] = []
        for place, line, original, proof in self._candidates(entry, info, index, name):
            if proof is Proof.NONE:
                continue
            if proof is Proof.LIKELY and not self._is_among_copies(index, place):
                continue
            if keys := tuple(_keys(entry, original, self._fmt, paths)):
                marker = Marker(place.ref, place.hash, len(line), keys, place.at)
                found.append((self._differing(entry, original, name), marker))
        # Of the originals with the fewest differing values, the newest comes first.
        return min(found, key=lambda each: each[0])[1] if found else None

    def may_be_lost(
        self, entry: Entry, info: EntryInfo, index: int, path: ValuePath, name: str
    ) -> bool:
        """Return whether bsd may have written a placeholder for which no original is found.

        If a line of the named entry is stored, and this entry is not proved to be a copy of it, the
        placeholder is text.
        """
        # An entry that supersedes others has copies of their values.
        is_copy = info.supersedes and self._fmt.value_name(entry, path) is not None
        if is_copy and name != info.id:
            return True
        if not self._may_be_named(entry, info, name):
            return False
        if name != info.id and self._fmt.tells_origin and not self._has_origin:
            return False
        proofs = [proof for *_, proof in self._candidates(entry, info, index, name)]
        return not proofs or Proof.CERTAIN in proofs

    def _may_be_named(self, entry: Entry, info: EntryInfo, name: str) -> bool:
        """Return whether an entry can be the entry that a placeholder in it names."""
        return name == info.id or (self._fmt.renews_id(entry, name) and name not in self._ids)

    def _candidates(
        self, entry: Entry, info: EntryInfo, index: int, name: str
    ) -> Iterator[tuple[StoredPlace, bytes, Entry, Proof]]:
        """Yield each stored line of entry `name`, with the proof that `entry` is a copy of it."""
        if not self._may_be_named(entry, info, name):
            return
        for place in self._stored.of_entry(name):
            line = self._stored.load(place.ref, place.hash)
            original = None if isinstance(line, Missing) else parse_kept(line)
            if original is None or isinstance(line, Missing):
                continue
            if self._fmt.info(original).id != name:  # a hash collision of `entry_key`
                continue
            own = self._stored.is_own(place)
            at_its_place = self._stands_at_its_place(index, place)
            proof = proof_of_copy(entry, original, self._fmt, own=own, at_its_place=at_its_place)
            yield place, line, original, proof

    def _stands_at_its_place(self, index: int, place: StoredPlace) -> bool:
        """Return whether a line stands where its program copies the stored line to.

        A copied session begins with its own header, followed by the whole file that it was made
        from.
        """
        if not self._fmt.tells_origin or place.index is None:
            return False
        own, ids = self._stored.is_own(place), self._stored.ids_of(place)
        headers = self._headers
        first = next((at for at, names in headers if own or names[0] in ids), None)
        return first is not None and any(
            at >= first and index - at == place.index for at, _ in headers
        )

    @cached_property
    def _headers(self) -> list[tuple[int, tuple[str, ...]]]:
        """The headers at the beginning of the session: line number and ids of each."""
        found = []
        for line in self._source.lines():
            entry = parse_entry(line.raw)
            names = self._fmt.origins(entry) if entry is not None else ()
            if not names:
                break
            found.append((line.index, names))
        return found

    @property
    def _has_origin(self) -> bool:
        """Whether the program states that it made this session from another session."""
        return len(self._headers) > 1 or any(len(names) > 1 for _, names in self._headers)

    def _is_among_copies(self, index: int, place: StoredPlace) -> bool:
        """Return whether the entry fits, in order, among certain copies of lines of one session.

        At least one such copy must follow it, since a session's new lines come after all copies.
        """
        number = place.index
        copies = [(at, was) for store, at, was in self._certain_copies if store == place.store]
        return (
            number is not None
            and any(at > index for at, _ in copies)
            and all((at < index) == (was < number) for at, was in copies)
        )

    @cached_property
    def _certain_copies(self) -> set[tuple[str, int, int]]:
        """Store, line number here, and original line number of each certain copy with a new id."""
        found = set()
        for line in self._source.lines_holding(NEEDLES[1]):
            entry = parse_entry(line.raw)
            if entry is None:
                continue
            info = self._fmt.info(entry)
            for name in {*loose_placeholders(entry, self._fmt).values()} - {info.id}:
                for place, _, _, proof in self._candidates(entry, info, line.index, name):
                    if proof is Proof.CERTAIN and place.index is not None:
                        found.add((place.store, line.index, place.index))
        return found

    @cached_property
    def _ids(self) -> set[str | None]:
        """The ids of all entries; a placeholder that names one of them in another entry is text."""
        entries = (parse_entry(line.raw) for line in self._source.lines())
        return {self._fmt.info(entry).id for entry in entries if entry is not None}

    def _differing(self, entry: Entry, original: Entry, name: str) -> int:
        """Return the number of inline values that differ from the stored values."""
        texts = {value.path: value.text for value in self._fmt.values(original, 1)}
        return sum(
            value.path in texts and value.text != texts[value.path]
            for value in self._fmt.values(entry, 1)
            if value.text is None or ends_in_placeholder(value.text) != name
        )


def loose_placeholders(entry: Entry, fmt: TranscriptFormat) -> dict[ValuePath, str]:
    """Map the path of each value that ends in a placeholder to the entry id in it."""
    return {
        value.path: name
        for value in fmt.values(entry, 1)
        if value.text is not None and (name := ends_in_placeholder(value.text))
    }


def source_paths(
    entry: Entry, original: Entry, fmt: TranscriptFormat, paths: list[ValuePath]
) -> dict[ValuePath, ValuePath]:
    """Return where extracted values stand in the original: nearly always at the same path.

    A program may have copied single values into another entry (`copied_paths`), or turned a text
    into a list. The value is then found if the original has exactly one value of the same kind that
    `entry` does not have.
    """
    if copied := copied_paths(entry, original, fmt, paths):
        return copied
    found = {path: path for path in paths if is_present(original, path)}
    moved = [path for path in paths if path not in found]
    if len(moved) == 1 and (name := standing_at(entry, moved[0])):
        here = {value.path: (value.type, value.display) for value in fmt.values(entry, 1)}
        elsewhere = [
            value.path
            for value in fmt.values(original, 1)
            if value.path not in here and (value.type, value.display) == here.get(moved[0])
        ]
        text = value_at(original, elsewhere[0]) if len(elsewhere) == 1 else None
        if isinstance(text, str) and text.startswith(_head(entry, moved[0], name)):
            found[moved[0]] = elsewhere[0]
    return found


def copied_paths(
    entry: Entry, original: Entry, fmt: TranscriptFormat, paths: Iterable[ValuePath]
) -> dict[ValuePath, ValuePath]:
    """Return where values stand in the original of another entry, by their names in both."""
    names = {path: fmt.value_name(entry, path) for path in paths}
    if all(name is None for name in names.values()) or fmt.info(entry).id == fmt.info(original).id:
        return {}
    # From 2 characters on, an object may be one value; before, it is listed by its strings.
    values = [*fmt.values(original, 1), *fmt.values(original, 2)]
    there = {fmt.value_name(original, value.path): value.path for value in values}
    return {path: there[name] for path, name in names.items() if name is not None and name in there}


def _copied_keys(
    entry: Entry, original: Entry, fmt: TranscriptFormat, name: str, paths: list[ValuePath]
) -> Iterator[tuple[ValuePath, ValuePath]]:
    """Yield the paths of placeholders that stand for values of the original, with their keys."""
    for path, source in copied_paths(entry, original, fmt, paths).items():
        was = value_at(original, source)
        if isinstance(was, dict) and path[-1] == "text":
            yield path, path[:-1]  # a text replaced a block
        elif not isinstance(was, str) or (
            was.startswith(_head(entry, path, name)) and not was.endswith(placeholder(name))
        ):
            yield path, path


def _keys(
    entry: Entry, original: Entry, fmt: TranscriptFormat, paths: list[ValuePath]
) -> Iterator[str]:
    """Yield the keys of the extracted values, as the marker would name them."""
    blocks = {path: path[:-1] if _is_other_block(original, path) else path for path in paths}
    known = source_paths(entry, original, fmt, list(blocks.values()))
    for path, key in blocks.items():
        if key not in known:
            continue
        was = value_at(original, known[key])
        name = standing_at(entry, key) or ""
        # An inline part must be the beginning of the text; a placeholder is not content.
        if not isinstance(was, str) or (
            was.startswith(_head(entry, path, name)) and not was.endswith(placeholder(name))
        ):
            yield format_path(key)


def _is_other_block(original: Entry, path: ValuePath) -> bool:
    """Return whether a text replaces a block of another type, such as an image."""
    block = value_at(original, path[:-1])
    return isinstance(block, dict) and path[-1] not in block


def _head(entry: Entry, path: ValuePath, name: str) -> str:
    """Return the text before a placeholder: the first characters of the value (`keep_chars`)."""
    text = value_at(entry, path)
    return text.removesuffix(placeholder(name)) if isinstance(text, str) else ""


def keys_of(entry: Entry, marker: Marker) -> Iterator[ValuePath]:
    """Yield the paths of a marker's placeholders; for a block: of the text that replaced it."""
    for path in away_paths(entry, marker).values():
        yield (*path, "text") if isinstance(value_at(entry, path), dict) else path


def away_paths(entry: Entry, marker: Marker) -> dict[str, ValuePath]:
    """Return those keys of a marker whose placeholder still stands, with their paths."""
    return {key: path for key, path in paths_of(marker.keys).items() if standing_at(entry, path)}


def copied_markers(entry: Entry, paths: Collection[ValuePath]) -> list[ValuePath]:
    """Return the paths of markers that a program copied into an entry, if their values come back.

    Args:
        entry: an entry with copies of other entries inside.
        paths: paths of the values that come back.
    """
    holders = {path[:end] for path in paths for end in range(1, len(path))}
    found = []
    for holder in sorted(holders, key=str):
        inner = value_at(entry, holder)
        marker = Marker.of(inner) if isinstance(inner, dict) else None
        if marker and all((*holder, *key) in paths for key in away_paths(inner, marker).values()):
            found.append((*holder, MARKER))
    return found


def stored_line(
    raw: bytes, entry: Entry, marker: Marker, fmt: TranscriptFormat, stored: OriginalStore
) -> bytes | Missing:
    """Return the line that a marker names, if this entry is a copy of it (`is_marked_copy`).

    A hash alone gives no access, since any line could contain it. If the file is lost, a stored
    copy of the entry may have the same values; the hash then proves that the line made from both is
    the lost line.

    Args:
        raw: the line as it stands in the session.
        entry: its parsed content.
        marker: its marker.
        fmt: the format of the session.
        stored: the store of the session.
    """
    names = {
        name for path in away_paths(entry, marker).values() if (name := standing_at(entry, path))
    }
    line = stored.load(marker.ref, marker.hash)
    if line is Missing.FORGOTTEN:
        return line
    if isinstance(line, Missing):
        return next(_made_of_copies(raw, entry, marker, fmt, stored, names), line)
    original = parse_kept(line)
    if original is None:
        return Missing.CORRUPT
    if is_marked_copy(entry, original, fmt):
        return line
    paths = away_paths(entry, marker).values()
    named = [path for path in paths if standing_at(entry, path) == fmt.info(original).id]
    return line if copied_paths(entry, original, fmt, named) else Missing.FOREIGN


def _made_of_copies(
    raw: bytes,
    entry: Entry,
    marker: Marker,
    fmt: TranscriptFormat,
    stored: OriginalStore,
    names: Iterable[str],
) -> Iterator[bytes]:
    paths = list(away_paths(entry, marker).values())
    for place in (place for name in names for place in stored.of_entry(name)):
        copy = stored.load(place.ref, place.hash) if place.hash != marker.hash else Missing.GONE
        original = None if isinstance(copy, Missing) else parse_kept(copy)
        if original is None or isinstance(copy, Missing):
            continue
        gone = [
            member
            for value in fmt.values(original, maxsize)
            if value.path in paths
            for member in value.removes
            if not is_present(entry, member)
        ]
        for members in ([(MARKER,)], [(MARKER,), (RESTORED,)]):
            remove = [member for member in members if is_present(entry, member)]
            with suppress(SpliceError):
                values = {path: copy[slice(*span)] for path, span in find(copy, paths).items()}
                made = edit(raw, replace=values, remove=remove, reinsert=gone, original=copy)
                if fmt.keeps_length:
                    made = with_length(made, marker.size)
                if digest(made) == marker.hash:
                    yield made

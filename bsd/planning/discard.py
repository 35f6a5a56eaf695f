"""Other texts in place of an entry's values; `discard` and `distill` do it to a whole entry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from bsd.core.errors import FieldError
from bsd.planning.context_window import WARNING, Binds, never
from bsd.planning.conversation import Conversation, is_users, may_change, read_through
from bsd.planning.locate import Located
from bsd.planning.plan import Plan
from bsd.planning.targets import (
    DISCARD,
    DISCARDED,
    DISTILL,
    Action,
    ContextChange,
    ContextChanged,
    Discard,
    Refused,
    change_plan,
    context_changed,
)
from bsd.planning.view import SHORTEST, known_hashes
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.entry import MARKER, Entry, Marker
from bsd.transcripts.agents.format import EntryInfo, TranscriptFormat, Value
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript
from bsd.transcripts.spans import ValuePath, paths_of
from bsd.transcripts.splice import SpliceError, edit, encode_string

_HINT = "`bsd context AGENT/SESSION` lists the entries as they are now, with their hashes"
_MOST_LISTED = 5


def put_texts(
    raw: bytes, entry: Entry, texts: Sequence[tuple[Value, str]], put: Mapping[str, bytes] = {}
) -> bytes:
    """Put texts in the place of values, and members into the entry; raises SpliceError.

    What was in the store of such a value is no longer spoken of by the line. A block that is no
    text becomes a text block.
    """
    replaced = {value.path: value.shape.holding(encode_string(text)) for value, text in texts}
    members = dict(put)
    remove: list[ValuePath] = []
    marker = Marker.of(entry)
    if marker and (gone := _no_longer_away(marker, replaced)):
        left = tuple(key for key in marker.keys if key not in gone)
        if left:
            members[MARKER] = Marker(
                marker.ref, marker.hash, marker.size, left, marker.at
            ).to_json()
        else:
            remove.append((MARKER,))
    return edit(raw, replace=replaced, remove=remove, put=members)


def _no_longer_away(marker: Marker, replaced: Mapping[ValuePath, bytes]) -> set[str]:
    """Keys of values that a text takes the place of; a block's key names the whole block."""
    return {
        key
        for key, path in paths_of(marker.keys).items()
        if path in replaced or any(other[:-1] == path for other in replaced)
    }


@dataclass(frozen=True, slots=True)
class _Addressed:
    """An entry that a target means, and the line as it shall be."""

    index: int
    entry_id: str | None
    name: str
    hash: str
    edit: Edit | None
    changed: ContextChange | None
    characters: int  # of text that give way
    problem: str | None


def plan_discard(
    source: Transcript,
    fmt: TranscriptFormat,
    targets: Sequence[Discard],
    *,
    include_user: bool = False,
    protected_tools: Collection[str] = (),
    binds: Binds = never,
) -> tuple[Plan, ContextChanged]:
    """Plan these discards, or with summaries distillations; all or none, else Refused.

    `binds` tells which models' signatures make a change worth a warning.
    """
    action: Action = DISTILL if any(target.summary is not None for target in targets) else DISCARD
    conversation = Conversation(fmt, protected_tools, binds)
    found: list[list[_Addressed]] = [[] for _ in targets]
    by_start: dict[str, list[int]] = defaultdict(list)
    for number, target in enumerate(targets):
        by_start[target.hash[:SHORTEST]].append(number)
    for seen in read_through(source, fmt):
        conversation.follow(seen)
        hashes = known_hashes(seen.line.raw, seen.entry)
        close = (number for hash_ in hashes for number in by_start.get(hash_[:SHORTEST], ()))
        meant = [
            number
            for number in dict.fromkeys(close)
            if any(hash_.startswith(targets[number].hash) for hash_ in hashes)
        ]
        if not meant:
            continue
        values, protection = content_values(seen, fmt), conversation.own_protection(seen)
        why = _unfit(seen.info, values, include_user=include_user)
        why = why or (f"Protected: {protection}" if protection else None)
        for number in meant:
            found[number].append(_address(seen, values, targets[number], hashes[0], why))
    problems = _problems(targets, found, conversation)
    if problems:
        raise Refused(action, problems, hint=_HINT)
    chosen = [entries[0] for entries in found]
    warnings = tuple(WARNING.format(one.name) for one in chosen if conversation.is_bound(one.index))
    changed = tuple(
        replace(one.changed, tokens_saved=conversation.tokens(one.index, one.characters))
        for one in chosen
        if one.changed
    )
    answer = context_changed(action, changed, warnings)
    in_order = sorted(chosen, key=lambda one: one.index)
    edits = [one.edit for one in in_order if one.edit]
    touched = [TouchedLine(one.index, one.entry_id) for one in in_order]
    return change_plan(source, action, edits, touched, answer, conversation.rate), answer


def texts_for(values: Sequence[Value], first: str, others: str) -> list[tuple[Value, str]]:
    """What takes the place of an entry's values: the first one says it, the others give way.

    Short leaves of an object (a name, a state) stay: they say what it is.
    """
    if any(not value.leaf or value.length > len(others) for value in values):
        values = [value for value in values if not value.leaf or value.length > len(others)]
    return [(value, others if at else first) for at, value in enumerate(values)]


def content_values(seen: Located, fmt: TranscriptFormat) -> list[Value]:
    """Everything of an entry that the model reads, but thinking and calls."""
    return [value for value in fmt.values(seen.entry) if may_change(value)]


def _address(
    seen: Located, values: Sequence[Value], target: Discard, hash_: str, problem: str | None
) -> _Addressed:
    info, line = seen.info, seen.line
    name = seen.name
    edit, changed, characters = None, None, 0
    if problem is None:
        first = DISCARDED if target.summary is None else target.summary
        texts = texts_for(values, first, DISCARDED)
        try:
            new = put_texts(line.raw, seen.entry, texts)
        except SpliceError as error:
            problem = f"it cannot be edited safely: {error.message}"
        else:
            edit = Edit(line.offset, len(line.raw), new)
            changed, characters = _changed(target, name, texts), _characters(texts)
            problem = "there is nothing left to discard" if new == line.raw else None
    return _Addressed(line.index, info.id, name, hash_, edit, changed, characters, problem)


def _unfit(info: EntryInfo, values: Sequence[Value], *, include_user: bool) -> str | None:
    if info.is_header or not info.is_message:
        return f"it is no message ({info.kind})"
    if not values:
        return "it has no text (thinking and tool calls are left alone)"
    if not include_user and any(is_users(value, info) for value in values):
        return "the user wrote it, which is left alone unless include_user is set"
    return None


def _changed(target: Discard, name: str, texts: Sequence[tuple[Value, str]]) -> ContextChange:
    length = sum(value.length for value, _ in texts)
    return ContextChange(target.as_json(), name, length, sum(len(text) for _, text in texts), 0)


def _characters(texts: Sequence[tuple[Value, str]]) -> int:
    """How many characters of text give way; an image is not paid by its characters."""
    return sum(value.length - len(text) for value, text in texts if not value.shape.is_block)


def _problems(
    targets: Sequence[Discard], found: Sequence[Sequence[_Addressed]], conversation: Conversation
) -> list[FieldError]:
    problems = []
    named: dict[int, int] = {}
    for number, (target, entries) in enumerate(zip(targets, found, strict=True)):
        text = None
        if not entries:
            text = f"Hash(es) not found: {target.hash}"
        elif len(entries) > 1:
            listed = ", ".join(
                f"{_enough(one.hash, entries)} (entry {one.name})" for one in entries[:_MOST_LISTED]
            )
            text = f"Hash {target.hash} means {len(entries)} entries; use one of {listed}"
        else:
            [one] = entries
            why = one.problem or _protected(conversation, one.index)
            if why is None and one.index in named:
                why = f"targets[{named[one.index]}] names it too"
            named.setdefault(one.index, number)
            text = f"entry {one.name} ({target.hash}): {why}" if why else None
        if text is not None:
            problems.append(FieldError(f"targets[{number}]", text))
    return problems


def _protected(conversation: Conversation, index: int) -> str | None:
    why = conversation.protection(index)
    return f"Protected: {why}" if why else None


def _enough(hash_: str, entries: Sequence[_Addressed]) -> str:
    """As many digits as tell an entry from the others; all, should their lines be equal."""
    for length in range(SHORTEST, len(hash_)):
        if sum(one.hash.startswith(hash_[:length]) for one in entries) == 1:
            return hash_[:length]
    return hash_

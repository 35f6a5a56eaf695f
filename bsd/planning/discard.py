"""Replaces the texts of an entry. `discard` and `distill` replace all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bsd.core.errors import FieldError
from bsd.planning.context_window import WARNING, Binds, never
from bsd.planning.conversation import Conversation, is_users, may_change
from bsd.planning.locate import Located, entries
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
)
from bsd.planning.view import SHORTEST, known_hashes
from bsd.store.history import TouchedLine
from bsd.transcripts.agents.entry import MARKER, Entry, Marker
from bsd.transcripts.agents.format import TranscriptFormat, Value
from bsd.transcripts.change import Edit
from bsd.transcripts.reader import Transcript
from bsd.transcripts.spans import paths_of
from bsd.transcripts.splice import SpliceError, edit, encode_string

_HINT = "`bsd context AGENT/SESSION` lists the entries as they are now, with their hashes"
_MOST_LISTED = 5


def put_texts(
    raw: bytes, entry: Entry, texts: Sequence[tuple[Value, str]], put: Mapping[str, bytes] = {}
) -> bytes:
    """Return the line with new texts for these values, and with the members `put` added.

    The line's marker no longer names the stored original of a replaced value. A block that is not
    text becomes a text block.

    Raises:
        SpliceError: the line cannot be edited.
    """
    replaced = {value.path: value.shape.holding(encode_string(text)) for value, text in texts}
    members, remove = dict(put), []
    if marker := Marker.of(entry):
        # The key of a block names the whole block, although only its text is replaced.
        gone = {
            key
            for key, path in paths_of(marker.keys).items()
            if path in replaced or any(other[:-1] == path for other in replaced)
        }
        left = tuple(key for key in marker.keys if key not in gone)
        if not left:
            remove.append((MARKER,))
        elif gone:
            rest = Marker(marker.ref, marker.hash, marker.size, left, marker.at)
            members[MARKER] = rest.to_json()
    return edit(raw, replace=replaced, remove=remove, put=members)


def texts_for(values: Sequence[Value], first: str, others: str) -> list[tuple[Value, str]]:
    """Return the new texts for an entry's values: `first` for the first one, then `others`.

    Short leaves of an object (a name, a state) are left out, since they show its kind.
    """
    long = [value for value in values if not value.leaf or value.length > len(others)]
    return [(value, others if at else first) for at, value in enumerate(long or values)]


def content_values(seen: Located, fmt: TranscriptFormat) -> list[Value]:
    """Return all values of an entry that the model reads, except thinking and calls."""
    return [value for value in fmt.values(seen.entry) if may_change(value)]


@dataclass(frozen=True, slots=True)
class _Addressed:
    """An entry that matches a target, with its edit or with the problem that prevents it."""

    index: int
    entry_id: str | None
    name: str
    hash: str
    problem: str | None
    edit: Edit | None = None
    length: int = 0  # characters of its texts
    new_length: int = 0
    characters: int = 0  # saved characters of text; images are not charged by characters


def plan_discard(
    source: Transcript,
    fmt: TranscriptFormat,
    targets: Sequence[Discard],
    *,
    include_user: bool = False,
    protected_tools: Collection[str] = (),
    binds: Binds = never,
    now: float | None = None,
) -> tuple[Plan, ContextChanged]:
    """Plan the discard or, if targets have summaries, the distillation of entries.

    All targets are planned, or none.

    Args:
        include_user: also change text that the user wrote.
        protected_tools: names of tools whose calls and results are not changed.
        binds: tells whether the signatures of a model cover earlier entries, which adds a warning.
        now: epoch seconds; None: a turn without a recorded end stays open.

    Raises:
        Refused: at least one target cannot be changed.
    """
    action: Action = DISTILL if any(target.summary is not None for target in targets) else DISCARD
    conversation = Conversation(fmt, protected_tools, binds)
    found: list[list[_Addressed]] = [[] for _ in targets]
    by_start: dict[str, list[int]] = defaultdict(list)
    for number, target in enumerate(targets):
        by_start[target.hash[:SHORTEST]].append(number)
    for seen in entries(source.lines(), fmt):
        conversation.follow(seen)
        hashes = known_hashes(seen.line.raw, seen.entry)
        close = (number for hash_ in hashes for number in by_start.get(hash_[:SHORTEST], ()))
        for number in dict.fromkeys(close):
            target = targets[number]
            if any(hash_.startswith(target.hash) for hash_ in hashes):
                values = content_values(seen, fmt)
                why = _unfit(seen, values, conversation, include_user=include_user)
                found[number].append(_address(seen, values, target, hashes[0], why))
    conversation.end_if_silent(now, source.identity.mtime)
    if problems := _problems(targets, found, conversation):
        raise Refused(action, problems, hint=_HINT)
    chosen = [addressed for [addressed] in found]
    changed = [
        ContextChange(
            target.as_json(),
            one.name,
            one.length,
            one.new_length,
            conversation.tokens(one.index, one.characters),
        )
        for target, one in zip(targets, chosen, strict=True)
    ]
    warnings = [WARNING.format(one.name) for one in chosen if conversation.is_bound(one.index)]
    in_order = sorted(chosen, key=lambda one: one.index)
    edits = [one.edit for one in in_order if one.edit]
    touched = [TouchedLine(one.index, one.entry_id) for one in in_order]
    return change_plan(source, fmt, action, edits, touched, changed, warnings, conversation.rate)


def _unfit(
    seen: Located, values: Sequence[Value], conversation: Conversation, *, include_user: bool
) -> str | None:
    """Return why an entry cannot be discarded, judged by the entry itself and those before it."""
    info = seen.info
    if info.is_header or not info.is_message:
        return f"it is not a message ({info.kind})"
    if not values:
        return "it has no text (thinking and tool calls are left alone)"
    if not include_user and any(is_users(value, info) for value in values):
        return "the user wrote it; it is changed only with include_user"
    protection = conversation.own_protection(seen)
    return f"Protected: {protection}" if protection else None


def _address(
    seen: Located, values: Sequence[Value], target: Discard, hash_: str, problem: str | None
) -> _Addressed:
    line, about = seen.line, (seen.line.index, seen.info.id, seen.name, hash_)
    if problem is not None:
        return _Addressed(*about, problem)
    first = DISCARDED if target.summary is None else target.summary
    texts = texts_for(values, first, DISCARDED)
    try:
        new = put_texts(line.raw, seen.entry, texts)
    except SpliceError as error:
        return _Addressed(*about, f"it cannot be edited safely: {error.message}")
    return _Addressed(
        *about,
        "it has this text already" if new == line.raw else None,
        Edit(line.offset, len(line.raw), new),
        sum(value.length for value, _ in texts),
        sum(len(text) for _, text in texts),
        sum(value.length - len(text) for value, text in texts if not value.shape.is_block),
    )


def _problems(
    targets: Sequence[Discard], found: Sequence[Sequence[_Addressed]], conversation: Conversation
) -> list[FieldError]:
    problems = []
    named: dict[int, int] = {}  # line → the first target that names it
    for number, (target, addressed) in enumerate(zip(targets, found, strict=True)):
        text = None
        if not addressed:
            text = f"Hash(es) not found: {target.hash}"
        elif len(addressed) > 1:
            listed = ", ".join(
                f"{_enough(one.hash, addressed)} (entry {one.name})"
                for one in addressed[:_MOST_LISTED]
            )
            text = f"Hash {target.hash} means {len(addressed)} entries; use one of {listed}"
        else:
            [one] = addressed
            protection = conversation.protection(one.index)
            why = one.problem or (f"Protected: {protection}" if protection else None)
            if why is None and one.index in named:
                why = f"targets[{named[one.index]}] names the same entry"
            named.setdefault(one.index, number)
            text = f"entry {one.name} ({target.hash}): {why}" if why else None
        if text is not None:
            problems.append(FieldError(f"targets[{number}]", text))
    return problems


def _enough(hash_: str, addressed: Sequence[_Addressed]) -> str:
    """Return the shortest unique prefix among `addressed`; the whole hash if lines are equal."""
    for length in range(SHORTEST, len(hash_)):
        if sum(one.hash.startswith(hash_[:length]) for one in addressed) == 1:
            return hash_[:length]
    return hash_

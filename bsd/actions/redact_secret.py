"""Replace one secret everywhere: in sessions, stores, the archive, the history and copies.

The caller names the secret by its hash. A redaction takes these steps:

1. The rules find the secret of this hash. Then its text is searched for everywhere, also in places
   where no rule finds it.
2. The editor changes every session that contains it. The undo data and the copies of the session
   lose the secret immediately afterwards.
3. The old stored lines are deleted (`Forget.lines`). This comes last because another session may
   need a stored line until that session is changed, too.
4. Every file of bsd is read once more. The answer names the files that still contain the secret.

A journal without the secret exists from step 2 to step 3. `bsd verify` uses it to report a
redaction that was killed. The same call continues such a redaction: the rules find the secret again
in the remaining places. If only the search index and a replaced version of a session still contain
it, the sessions of the journal are enough to clear these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bsd.actions.context import ActionContext
from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Conflict, Invalid, NotFound, Unavailable, os_problem
from bsd.core.files import plain_stream
from bsd.core.formatting import iso_utc
from bsd.core.layout import Layout, SessionName
from bsd.core.locks import own_lock
from bsd.maintenance.crash_journal import RedactionJournal, redaction_journals, remove_journal
from bsd.maintenance.deleted_sessions import is_deleted
from bsd.maintenance.forget import Forget
from bsd.maintenance.references import References, ReferringSession
from bsd.maintenance.secret_copies import (
    changed_by_redaction,
    files_with,
    not_searched,
    unreached,
    why_unwritable,
)
from bsd.maintenance.secret_patterns import Secret
from bsd.maintenance.secrets import SecretSearch
from bsd.maintenance.stored_lines import StoredLineReader, StoredLines, TextPlace
from bsd.planning.plan import Plan
from bsd.planning.redact_text import LeftInPlace, SecretText, TextRedactor, plan_text_redaction
from bsd.planning.rules import Policy
from bsd.sessions.commit.inflight import InFlight
from bsd.sessions.foreign import why_foreign
from bsd.sessions.idle import IdlePolicy, busy
from bsd.sessions.session import OpenSession, Session, format_of
from bsd.store.history import History
from bsd.store.originals import SessionStore, digest
from bsd.store.recipes import Place
from bsd.store.snapshot_parts import SnapshotReader
from bsd.store.snapshots import snapshots_of
from bsd.transcripts.agents.entry import MARKER
from bsd.transcripts.agents.opening import open_transcript
from bsd.transcripts.agents.programs import program_of
from bsd.transcripts.reader import Line

_HASH = re.compile(r"[0-9a-f]{8,16}")
_HINT = "`bsd secrets` lists them"
_SHORTEST = 8  # characters: a shorter secret may be a part of ordinary words


@dataclass(frozen=True, slots=True)
class RedactedSession:
    """The outcome for one session. With `dry_run`, the expected outcome."""

    session: str
    entries: Annotated[int, Field(description="Number of its lines that were changed")]
    values: Annotated[
        int, Field(description="Number of changed values in these lines and in stored originals")
    ]
    stored: Annotated[int, Field(description="Number of stored lines that were deleted")]
    copies: Annotated[
        int, Field(description="Number of lines of undo data and of copies that were changed")
    ]
    forgotten: Annotated[
        tuple[str, ...],
        Field(description="Entries whose extracted values cannot be restored any more"),
        OMIT_EMPTY,
    ] = ()
    bound: Annotated[
        tuple[str, ...],
        Field(
            description="Changed entries that a later signature covers: the provider may now"
            " reject the session (setting prefix_bound_models)"
        ),
        OMIT_EMPTY,
    ] = ()
    error: Annotated[
        str | None, Field(description="Why the session was not changed"), OMIT_EMPTY
    ] = None
    problem: Internal[BsdError | None] = None


@dataclass(frozen=True, slots=True)
class SecretRedacted:
    """The outcome of a redaction. The answer does not contain the secret."""

    hash: str
    rule: str
    masked: str
    dry_run: bool
    sessions: tuple[RedactedSession, ...]
    left: Annotated[
        tuple[LeftInPlace, ...], Field(description="Places from which it cannot be removed")
    ]
    still_in: Annotated[
        tuple[str, ...],
        Field(description="Files that contain it after the redaction (dry run: would contain it)"),
    ]
    complete: Annotated[bool, Field(description="True if bsd knows no remaining copy of it")]
    unreached: Annotated[
        tuple[str, ...],
        Field(description="Places outside the reach of bsd that may contain copies, as sentences"),
    ]


@dataclass(slots=True)
class _Concern:
    """The places in one session that contain the secret, and the outcome for this session."""

    tainted: set[str] = field(default_factory=set)  # hashes of its stored lines
    inline: int = 0  # lines
    redactor: TextRedactor | None = None
    touched: set[str | None] = field(default_factory=set)  # ids of entries that were changed
    entries: int = 0
    copies: int = 0
    problem: BsdError | None = None


def redact_secret(
    context: ActionContext,
    hash: str,
    *,
    sessions: Sequence[SessionName] = (),
    dry_run: bool = False,
) -> SecretRedacted:
    """Replace a secret by `[redacted-RULE]` in every place.

    A redaction cannot be undone: it also deletes undo data that contains the secret.

    Args:
        hash: the hash that `find_secrets` lists, or at least its first 8 digits.
        sessions: sessions that contain the secret; the search for the hash begins in these.
        dry_run: return the sessions that contain it and the copies that would remain, and change
            no file.

    Raises:
        NotFound: no secret has this hash.
        Invalid: `hash` is not 8 to 16 hex digits.
        Conflict: the secret is too short to be replaced everywhere.
    """
    layout = context.layout
    if not _HASH.fullmatch(hash):
        raise Invalid(f"{hash!r} is not the hash of a secret: 8 to 16 hex digits", hint=_HINT)
    try:
        secret = _find(context, hash, sessions)
    except NotFound:
        if (journal := _journal_of(layout, hash)) is None:
            raise
        return _finish(context, journal, dry_run=dry_run)
    text = SecretText(secret.text, secret.replacement)
    concerns, left = _concerns(context, text)
    stay = _needed(layout, concerns, left)
    if dry_run:
        _foresee(context, text, concerns)
    else:
        journal = RedactionJournal.new(layout, secret.hash, secret.rule, context.now(), concerns)
        with suppress(Unavailable):  # the disk is full, but redacting needs little space
            journal.write()
        _redact(context, text, concerns, stay)
        remove_journal(journal.path)
    left += [each for one in concerns.values() if one.redactor for each in one.redactor.left]
    still_in = tuple(_still_in(layout, text, concerns, stay, dry_run=dry_run))
    done = tuple(_told(name, one) for name, one in sorted(concerns.items()))
    failed = any(one.problem for one in concerns.values())
    complete = not (dry_run or failed or left or still_in)
    return SecretRedacted(
        secret.hash,
        secret.rule,
        secret.masked,
        dry_run,
        done,
        tuple(left),
        still_in,
        complete,
        unreached(layout),
    )


def _journal_of(layout: Layout, hash: str) -> RedactionJournal | None:
    """Return the journal of a redaction that was killed; raises BsdError if it is unreadable."""
    for _, journal in redaction_journals(layout):
        if isinstance(journal, RedactionJournal) and hash.startswith(journal.hash):
            return journal
    return None


def _finish(context: ActionContext, journal: RedactionJournal, *, dry_run: bool) -> SecretRedacted:
    """Finish a redaction that was killed when no stored or inline text contained the secret."""
    layout, concerns = context.layout, {name: _Concern() for name in journal.sessions}
    if not dry_run:
        forget = Forget(layout, everywhere=True, actor=context.actor, budget=context.budget)
        for name, concern in concerns.items():
            try:
                forget.lines(name, (), (), lambda line: line.raw)
            except (BsdError, OSError) as error:
                concern.problem = os_problem(error, f"redacting {name}")
        if not any(one.problem for one in concerns.values()):
            remove_journal(journal.path)
    done = tuple(_told(name, one) for name, one in concerns.items())
    complete = not (dry_run or any(one.problem for one in concerns.values()))
    where = unreached(layout)
    return SecretRedacted(journal.hash, journal.rule, "", dry_run, done, (), (), complete, where)


def _find(context: ActionContext, hash: str, sessions: Sequence[SessionName]) -> Secret:
    """Search for the secret of a hash: first in `sessions`, then in all sessions.

    Raises NotFound, and Conflict if the secret is too short to be replaced everywhere.
    """

    def matching() -> Secret | None:
        found = (each.secret for each in search.found.values())
        return next((each for each in found if each.hash.startswith(hash)), None)

    for only in dict.fromkeys((tuple(sessions), ())):
        search = SecretSearch(
            context.layout,
            only=only,
            progress=context.progress,
            stopping=lambda: context.stopping() or matching() is not None,
        )
        search.run()
        if (secret := matching()) is not None:
            if len(secret.text) < _SHORTEST:
                raise Conflict(
                    f"{secret.masked} is too short: other words may contain the same characters",
                    hint="`bsd edit AGENT/SESSION ENTRY` changes one entry",
                )
            return secret
    raise NotFound(f"no secret with the hash {hash} was found", hint=_HINT)


def _concerns(
    context: ActionContext, text: SecretText
) -> tuple[dict[SessionName, _Concern], list[LeftInPlace]]:
    """Find the sessions that contain the secret, and the places that cannot be searched."""
    layout = context.layout
    found: dict[SessionName, _Concern] = {}
    left = list(not_searched(layout))

    def unread(name: SessionName, why: BsdError) -> None:
        left.append(LeftInPlace(str(name), "", f"it was not searched: {why.message}"))

    def look(lines: StoredLines) -> None:
        if text.is_in(lines.data):
            concern = found.setdefault(lines.session, _Concern())
            if lines.place is TextPlace.COPIED:
                return
            if lines.is_stored:
                concern.tainted.add(digest(lines.data))
            else:
                concern.inline += sum(map(text.is_in, lines.data.split(b"\n")))

    StoredLineReader(layout, progress=context.progress, failed=unread).run(look)
    for directory in layout.history.iterdir() if layout.history.is_dir() else ():
        name_of_history = layout.session_of_store(directory.name)
        if name_of_history and (entries := set(_in_history(layout, name_of_history, text))):
            found.setdefault(name_of_history, _Concern()).touched |= entries
    return found, left


def _needed(
    layout: Layout, concerns: dict[SessionName, _Concern], left: list[LeftInPlace]
) -> set[str]:
    """Find the other sessions that refer to a stored line with the secret.

    Each of them, excluded ones too, is added to `concerns`. A session in the trash, or a session
    that its program has renamed, cannot be changed and is added to `left` instead.

    Returns:
        The hashes of the stored lines that must stay.
    """
    hashes = {hash_ for one in concerns.values() for hash_ in one.tainted}
    stay: set[str] = set()
    try:
        for session in References(layout).sessions() if hashes else ():
            name, where = session.name, _not_in_place(layout, session)
            if not where and name in concerns:
                continue
            if not (named := _named_by(session, hashes)):
                continue
            if where:
                stay |= named
                why = f"{where}, and it needs stored text that contains the secret"
                left.append(LeftInPlace(str(name), "", why))
            else:
                concerns[name] = _Concern()
    except (BsdError, OSError) as error:
        why = os_problem(error, "reading all sessions").message
        left.append(LeftInPlace("", "", f"stored text stays, since a session may need it: {why}"))
        stay = hashes
    return stay


def _not_in_place(layout: Layout, session: ReferringSession) -> str | None:
    """Return why a session cannot be changed; None if it is in its place, or is a copy."""
    if session.store is not None:
        return "it is in the trash"
    if session.snapshot is None and session.transcript != layout.transcript(session.name):
        return "its program has renamed it"
    return None


def _named_by(session: ReferringSession, hashes: Collection[str]) -> set[str]:
    """Return which of these stored lines the markers of a session name; raises as reading does."""
    named: set[str] = set()
    with suppress(NotFound), session.open() as source:
        for line in source.lines_holding(MARKER.encode()):
            named.update(each for each in hashes if each.encode() in line.raw)
    return named


def _in_history(layout: Layout, name: SessionName, text: SecretText) -> Iterator[str | None]:
    """Yield the entries whose former lines, in the undo data of a session, contain the secret."""
    history = History(layout, name)
    with suppress(BsdError, OSError):
        for operation in history.operations():
            with plain_stream(operation.path) as stream:
                for line in history.lines(operation):
                    stream.seek(line.kept_at)
                    kept = stream.read(line.kept)
                    pieces = (kept[at:end] for place, at, end in line.recipe if place is Place.KEPT)
                    # If an edit began within the secret, the undo data has the rest of it.
                    if text.is_in(kept) or any(map(text.is_cut_by, pieces)):
                        yield line.entry_id


def _foresee(
    context: ActionContext, text: SecretText, concerns: dict[SessionName, _Concern]
) -> None:
    """Plan the change of each session; note a problem if it could not be changed now."""
    layout, tainted = context.layout, _tainted(concerns)
    idle_policy = IdlePolicy(layout, context.budget, context.in_flight or InFlight(layout))
    for name, concern in concerns.items():
        try:
            layout.refuse_excluded(name)
            if is_deleted(layout, name):
                continue
            session = Session(layout, name)
            if unwritable := why_unwritable(session.path):
                raise unwritable
            if (not_idle := idle_policy.why_not(name)) is not None:
                raise busy(name, not_idle)
            with context.reader(name, to_edit=True) as opened:
                plan, concern.redactor = _plan(opened, text, tainted)
                concern.entries = len(plan.touched)
            if foreign := why_foreign(session):
                raise foreign
        except (BsdError, OSError) as error:
            concern.problem = os_problem(error, f"redacting {name}")


def _tainted(concerns: dict[SessionName, _Concern]) -> frozenset[str]:
    return frozenset(hash_ for one in concerns.values() for hash_ in one.tainted)


def _redact(
    context: ActionContext,
    text: SecretText,
    concerns: dict[SessionName, _Concern],
    stay: Collection[str],
) -> None:
    """Change all sessions, then delete their stored lines with the secret, except for `stay`."""
    layout = context.layout
    tainted = _tainted(concerns)
    forget = Forget(layout, everywhere=True, actor=context.actor, budget=context.budget)
    for name, concern in concerns.items():
        try:
            layout.refuse_excluded(name)
            if is_deleted(layout, name):
                concern.redactor = _redact_copies(context, name, text, tainted)
            else:
                _redact_in_place(context, name, text, tainted, concern)
                _redact_copies(context, name, text, tainted, concern.redactor)
            # Before the next session: a call that was killed must still find the secret in the
            # sessions that are left, and continue with these.
            change = _as_final(concern.redactor)
            concern.copies = forget.lines(name, (), concern.touched, change)
        except (BsdError, OSError) as error:
            concern.problem = os_problem(error, f"redacting {name}")
    removed = tainted - frozenset(stay)
    for name, concern in concerns.items():
        if concern.redactor is not None:
            removed -= concern.redactor.stay
        if concern.problem is not None:
            removed -= _named_in(layout.with_excluded(), name, removed)
    for name, concern in concerns.items():
        stored = concern.tainted & removed
        if concern.problem is None and stored:
            try:
                forget.lines(name, stored, (), lambda line: line.raw)
            except (BsdError, OSError) as error:
                concern.problem = os_problem(error, f"redacting {name}")
    context.cleaned()


def _named_in(layout: Layout, name: SessionName, hashes: frozenset[str]) -> frozenset[str]:
    """Return the stored lines that a session without a change still needs: all, if in doubt."""
    if is_deleted(layout, name):
        return hashes
    named: set[str] = set()
    try:
        with open_transcript(layout, name) as source:
            for line in source.lines_holding(MARKER.encode()):
                named.update(each for each in hashes if each.encode() in line.raw)
    except NotFound:
        return frozenset()
    except (BsdError, OSError):
        return hashes
    return frozenset(named)


def _as_final(redactor: TextRedactor | None) -> Callable[[Line], bytes]:
    """Return the function that changes lines of copies as the lines of the session were changed."""
    if redactor is None:
        return lambda line: line.raw
    redactor.is_final = True
    return lambda line: redactor.line(line) if redactor.may_concern(line.raw) else line.raw


def _redact_in_place(
    context: ActionContext,
    name: SessionName,
    text: SecretText,
    tainted: frozenset[str],
    concern: _Concern,
) -> None:
    """Change a session that is in its place."""

    def planner(opened: OpenSession) -> tuple[Plan, tuple[TextRedactor, list[str | None]]]:
        plan, redactor = _plan(opened, text, tainted)
        return plan, (redactor, [line.entry_id for line in plan.touched])

    concern.redactor, touched = context.editor(name).apply(planner)
    concern.entries = len(touched)
    concern.touched |= set(touched)


def _plan(
    opened: OpenSession, text: SecretText, tainted: frozenset[str]
) -> tuple[Plan, TextRedactor]:
    redactor = TextRedactor(str(opened.name), text, opened.format, opened.store, tainted)
    binds = Policy.of(opened.settings).binds
    return plan_text_redaction(opened.transcript, redactor, binds), redactor


def _redact_copies(
    context: ActionContext,
    name: SessionName,
    text: SecretText,
    tainted: frozenset[str],
    redactor: TextRedactor | None = None,
) -> TextRedactor | None:
    """Store new originals for the copies of a session; return the redactor of the copies.

    Args:
        redactor: the redactor of the session in its place; None if its program has deleted it. A
            value that is inline in the session may be extracted in a copy.
    """
    layout, budget = context.layout, context.budget
    with own_lock(layout, name, budget.wait, sleep=budget.sleep):
        return _store_for_copies(context, name, text, tainted, redactor)


def _store_for_copies(
    context: ActionContext,
    name: SessionName,
    text: SecretText,
    tainted: frozenset[str],
    redactor: TextRedactor | None,
) -> TextRedactor | None:
    layout, store = context.layout, SessionStore(context.layout, name)
    is_gone, stored = redactor is None, len(redactor.keeps) if redactor else 0
    for snapshot in snapshots_of(layout, name):
        with closing(SnapshotReader(snapshot)) as source:
            fmt = format_of(source, program_of(layout, name.agent))
            if fmt is None:
                continue
            redactor = redactor or TextRedactor(str(name), text, fmt, store, tainted)
            for line in source.lines():
                if redactor.may_concern(line.raw) if is_gone else redactor.needs_new(line.raw):
                    redactor.line(line)
    keeps = redactor.keeps[stored:] if redactor else []
    if keeps:
        at = iso_utc(context.now())
        store.add(keeps)
        store.index.add(keep.record(at) for keep in keeps)
    return redactor


def _told(name: SessionName, concern: _Concern) -> RedactedSession:
    redactor, problem = concern.redactor, concern.problem
    return RedactedSession(
        str(name),
        concern.entries if redactor else concern.inline,
        redactor.values if redactor else 0,
        len(concern.tainted),
        concern.copies,
        tuple(redactor.forgotten) if redactor else (),
        tuple(redactor.bound) if redactor else (),
        None if problem is None else problem.message,
        problem,
    )


def _still_in(
    layout: Layout,
    text: SecretText,
    concerns: dict[SessionName, _Concern],
    stay: Collection[str],
    *,
    dry_run: bool,
) -> Iterator[str]:
    """Yield the files that contain the secret after the redaction."""
    changed: tuple[Path, ...] = ()
    if dry_run:
        done = [name for name, one in concerns.items() if one.problem is None]
        needed = [name for name in done if not concerns[name].tainted.isdisjoint(stay)]
        changed = changed_by_redaction(layout, done, needed)
    for file in files_with(layout, text, concerns):
        if not any(Path(file).is_relative_to(place) for place in changed):
            yield file

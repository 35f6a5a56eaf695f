"""Turning an agent on and off: plans the changes of files, which can be shown, then writes them.

`plan_on` and `plan_off` read the files and compute their new content; `apply` writes it. If a file
has changed since the plan was made, `apply` writes no file. Content that existed before bsd's
additions, and additions that a user has changed since, stay.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from bsd.core.answers import OMIT_EMPTY, Internal
from bsd.core.errors import BsdError, Conflict, NotFound
from bsd.core.formatting import nearest
from bsd.core.layout import Layout
from bsd.setup.additions import (
    Outcome,
    SetupContext,
    is_blank,
    is_there,
    put,
    root_addition,
    source_addition,
    sources_in,
    take_away,
)
from bsd.setup.foreign_files import (
    ForeignFile,
    changed,
    make_directories,
    missing_directories,
    read_foreign,
    remove_empty,
    remove_leftovers,
    replace_foreign,
    text_of,
)
from bsd.setup.record import (
    MadeFile,
    RecordedAddition,
    SetupRecord,
    encode_record,
    lock_record,
    read_record,
    write_record,
)
from bsd.setup.toml_text import AddedToml
from bsd.transcripts.agents.programs import agent_setups
from bsd.transcripts.agents.setup_files import Addition, AgentSetup, JsonMember, SetupPart

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

_log = structlog.stdlib.get_logger(module="setup")


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The planned change of a file.

    `action` is create, change, delete, or keep if the file stays as it is or cannot be edited.
    """

    path: Path
    parts: list[SetupPart]
    action: str
    diff: Annotated[str, Field(description="Unified diff; empty without a change")]
    problem: Annotated[str | None, OMIT_EMPTY] = None
    hint: Annotated[str | None, OMIT_EMPTY] = None
    file: Internal[ForeignFile | None] = None
    content: Internal[str | None] = None
    lock: Internal[Path | None] = None
    recorded: Internal[tuple[RecordedAddition, ...]] = ()


@dataclass(frozen=True, slots=True)
class KeptAddition:
    """A part of the set-up that stays as it is, with the reason."""

    part: SetupPart
    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The changes that turn an agent on or off."""

    agent: str
    title: str
    turn: Annotated[str, Field(description="on or off")]
    files: list[FileEdit] = field(default_factory=list)
    kept: list[KeptAddition] = field(default_factory=list)

    @property
    def changes(self) -> list[FileEdit]:
        """The files that change."""
        return [edit for edit in self.files if edit.action != "keep"]

    @property
    def ends_source(self) -> bool:
        """True if bsd no longer knows the agent's sessions after these changes."""
        is_source = (SetupPart.SOURCE in edit.parts for edit in self.changes)
        return self.turn == "off" and any(is_source)

    @property
    def problems(self) -> list[FileEdit]:
        """The files that bsd cannot edit, partly or completely."""
        return [edit for edit in self.files if edit.problem is not None]


@dataclass(frozen=True, slots=True)
class SetupDone:
    """The result of `apply`: the files written, and the problem of each file that failed."""

    agent: str
    turn: str
    written: list[Path] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    hints: Internal[dict[str, str]] = field(default_factory=dict)


def setup_of(agent: str) -> AgentSetup:
    """Return the set-up of an agent's program; raises NotFound."""
    setups = agent_setups()
    if agent not in setups:
        known = ", ".join(setups)
        raise NotFound(
            f"bsd does not know the agent {agent}; did you mean {nearest(agent, setups)}?",
            hint=f"`bsd agents` lists them: {known}",
        )
    return setups[agent]


# --- planning ---


def plan_on(
    context: SetupContext, agent: str, *, permission: bool = False, root: bool = False
) -> SetupPlan:
    """Plan the changes that make bsd manage an agent's sessions and give the agent bsd's tools.

    Args:
        permission: also allow the agent's model to call bsd's tools without asking, if its program
            has such a rule.
        root: also write the root into bsd.toml.

    Raises:
        NotFound: the agent is unknown, or has no sessions on this machine.
        Conflict: the agent's sessions are not in this root.
        ConfigError: the record of additions is broken.
    """
    setup = setup_of(agent)
    wanted = list(_wanted(context, agent, setup, permission=permission, root=root))
    record = read_record(context.layout)
    plan = SetupPlan(agent, setup.title, "on")
    for path in dict.fromkeys(addition.file for addition in wanted):
        own = [addition for addition in wanted if addition.file == path]
        _plan_file(context, plan, path, own, record)
    return plan


def _wanted(
    context: SetupContext, agent: str, setup: AgentSetup, *, permission: bool, root: bool
) -> Iterator[Addition]:
    if root:
        yield root_addition(context)
    if setup.is_root:
        directory = setup.directory(context.environ)
        if not directory.is_dir():
            raise NotFound(f"{setup.title} was not found: there is no directory {directory}")
        if not is_the_root(context, setup):
            raise Conflict(
                f"{setup.title}'s directory {directory} is a root of its own, but this root is"
                f" {context.layout.root}",
                hint=f"`bsd --root {directory} agents on {agent}`",
            )
    else:
        yield source_addition(context, agent, setup)
    for addition in setup.additions(context.commands, context.environ):
        if permission or addition.part is not SetupPart.PERMISSION:
            yield addition


def lacks_permission(context: SetupContext, agent: str) -> bool:
    """Return True if the agent's program has a rule that allows bsd's tools, but it is not set.

    Raises NotFound if the agent is unknown, and BsdError if the file of the rule cannot be edited.
    """
    for addition in setup_of(agent).additions(context.commands, context.environ):
        if addition.part is SetupPart.PERMISSION:
            file = read_foreign(addition.file)
            content = None if file.content is None else text_of(file)
            return not is_there(content, addition)
    return False


def is_the_root(context: SetupContext, setup: AgentSetup) -> bool:
    """Return True if the directory of a program is bsd's root."""
    return setup.directory(context.environ).resolve() == context.layout.root.resolve()


def _plan_file(
    context: SetupContext,
    plan: SetupPlan,
    path: Path,
    wanted: list[Addition],
    record: SetupRecord,
) -> None:
    """Plan the additions to a file; if one is impossible, the others are still planned."""
    parts = [*dict.fromkeys(addition.part for addition in wanted)]
    try:
        file = read_foreign(path)
        before = None if file.content is None else text_of(file)
    except BsdError as problem:
        plan.files.append(_refused(path, parts, problem, record.of_file(plan.agent, path)))
        return
    content, recorded, refused = before, list[RecordedAddition](), None
    for addition in wanted:
        earlier = record.find(plan.agent, addition)
        try:
            outcome = put(content, addition, earlier, context.environ)
        except BsdError as problem:
            refused = refused or problem
            outcome = Outcome(content, earlier)
        content = outcome.content
        lock = addition.lock if isinstance(addition, JsonMember) else None
        # The root is not recorded, so it stays when the agent is turned off: it has bsd's store.
        if outcome.added is not None and addition.part is not SetupPart.ROOT:
            recorded.append(RecordedAddition(addition.part, path, outcome.added, lock))
        if outcome.kept is not None:
            plan.kept.append(KeptAddition(addition.part, path, outcome.kept))
    places = [getattr(addition, "path", None) for addition in wanted]
    earlier_ones = record.of_file(plan.agent, path)
    recorded += [e for e in earlier_ones if getattr(e.added, "path", None) not in places]
    locks = (each.lock for each in wanted if isinstance(each, JsonMember))
    plan.files.append(_edit(file, content, parts, recorded, refused, next(locks, None)))


def plan_off(context: SetupContext, agent: str, *, force: bool = False) -> SetupPlan:
    """Plan the removal of all additions that `plan_on` made.

    Args:
        force: also remove additions that were changed since, and `[[sources]]` written by hand.

    Raises:
        NotFound: the agent is unknown.
        ConfigError: the record of additions is broken.
    """
    setup = setup_of(agent)
    record = read_record(context.layout)
    plan = SetupPlan(agent, setup.title, "off")
    found = record.additions.get(agent, [])
    found = [*found, *_written_by_hand(context, plan, found, force=force)]
    for path in dict.fromkeys(each.file for each in reversed(found)):
        own = [each for each in found if each.file == path]
        _plan_removal(plan, path, own, record, force=force)
    return plan


def _written_by_hand(
    context: SetupContext, plan: SetupPlan, found: list[RecordedAddition], *, force: bool
) -> list[RecordedAddition]:
    """Return the `[[sources]]` of the agent that bsd did not add; [] without `force`: they stay."""
    path = context.settings_file
    ours = [e.added.value for e in found if e.file == path and isinstance(e.added, AddedToml)]
    try:
        file = read_foreign(path)
        sources = sources_in(None if file.content is None else text_of(file), plan.agent)
    except BsdError as problem:
        if not ours:  # otherwise the removal reports the problem
            plan.files.append(_refused(path, [SetupPart.SOURCE], problem))
        return []
    others = [each for each in sources if not any(each == {**each, **own} for own in ours)]
    if not force:
        why = "bsd did not add it; `--force` removes it"
        plan.kept.extend(KeptAddition(SetupPart.SOURCE, path, why) for _ in others)
        return []
    return [
        RecordedAddition(
            SetupPart.SOURCE, path, AddedToml(("sources",), source, in_array=True, text="")
        )
        for source in others
    ]


def _plan_removal(
    plan: SetupPlan, path: Path, found: list[RecordedAddition], record: SetupRecord, *, force: bool
) -> None:
    parts = [*dict.fromkeys(each.part for each in found)]
    refused: BsdError | None = None
    left: list[RecordedAddition] = []
    try:
        file = read_foreign(path)
        content = None if file.content is None else text_of(file)
    except BsdError as problem:
        plan.files.append(_refused(path, parts, problem, found))
        return
    made = record.made.get(path)
    for each in reversed(found):
        try:
            content = take_away(content, each.added, force=force)
            if made is not None and content is not None and is_blank(content, each.added):
                content = made.blank
        except BsdError as problem:
            refused = refused or problem
            left.insert(0, each)
    lock = next((each.lock for each in found if each.lock is not None), None)
    plan.files.append(_edit(file, content, parts, left, refused, lock))


def _edit(
    file: ForeignFile,
    content: str | None,
    parts: list[SetupPart],
    recorded: list[RecordedAddition],
    refused: BsdError | None,
    lock: Path | None,
) -> FileEdit:
    """Return the planned change of a file."""
    before = None if file.content is None else text_of(file)
    if before == content:
        action = "keep"
    else:
        action = "create" if before is None else "delete" if content is None else "change"
    return FileEdit(
        file.path,
        parts,
        action,
        _diff(file.path, before, content),
        refused.message if refused else None,
        (refused.hint or _BY_HAND) if refused else None,
        file,
        content,
        lock,
        tuple(recorded),
    )


_BY_HAND = "edit the file by hand, or correct it and run this again"


def _refused(
    path: Path,
    parts: list[SetupPart],
    problem: BsdError,
    recorded: Iterable[RecordedAddition] = (),
) -> FileEdit:
    """Return the planned change for a file that cannot be read: it stays."""
    hint = problem.hint or _BY_HAND
    return FileEdit(path, parts, "keep", "", problem.message, hint, recorded=tuple(recorded))


def _diff(path: Path, before: str | None, after: str | None) -> str:
    """Return a unified diff in the format of `diff -u`."""
    old, new = ("/dev/null" if text is None else str(path) for text in (before, after))
    lines = difflib.unified_diff(_LINE.findall(before or ""), _LINE.findall(after or ""), old, new)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


# --- carrying out ---


def apply(context: SetupContext, plan: SetupPlan) -> SetupDone:
    """Write the files of a plan; if a file cannot be written, the others still are.

    Raises:
        Conflict: a file has changed since the plan was made; no file was written.
        TemporaryFailure: another bsd is turning an agent on or off; no file was written.
        BsdError: the record cannot be written; the remaining files are unchanged.
    """
    with lock_record(context.layout):
        return _apply(context, plan)


def _apply(context: SetupContext, plan: SetupPlan) -> SetupDone:
    for edit in plan.changes:
        if edit.file is not None and read_foreign(edit.path) != edit.file:
            raise changed(edit.path)
    record = read_record(context.layout)
    known = encode_record(record)
    if plan.turn == "on":
        record.turned_off.discard(plan.agent)
    else:
        record.turned_off.add(plan.agent)
    done = SetupDone(plan.agent, plan.turn)
    for edit in plan.files:
        if edit.file is not None:
            remove_leftovers(edit.file.target)
        if plan.turn == "on":
            problem = _add(context.layout, plan.agent, edit, record)
        else:
            problem = _take_away(plan.agent, edit, record)
        if problem is not None:
            done.failed[str(edit.path)] = problem.message
            done.hints[str(edit.path)] = problem.hint or _BY_HAND
        elif edit.action != "keep":
            done.written.append(edit.path)
    if plan.changes or encode_record(record) != known:
        write_record(context.layout, record)
    _log.info("An agent is turned on or off", agent=plan.agent, turn=plan.turn)
    return done


def _add(layout: Layout, agent: str, edit: FileEdit, record: SetupRecord) -> BsdError | None:
    """Record the additions to a file, then write it; return the problem if the write failed.

    Raises BsdError if the record cannot be written.
    """
    before, made_before = record.of_file(agent, edit.path), record.made.get(edit.path)
    record.put(agent, edit.path, edit.recorded)
    file = edit.file
    if file is None or edit.action == "keep":
        return None
    if made_before is None and not (file.content or b"").strip():
        blank = None if file.content is None else text_of(file)
        record.made[edit.path] = MadeFile(blank, missing_directories(file.target))
    write_record(layout, record)
    try:
        _write(edit)
    except BsdError as problem:
        record.put(agent, edit.path, before)
        if made_before is None and (made := record.made.pop(edit.path, None)):
            remove_empty(made.directories)
        return problem
    return None


def _take_away(agent: str, edit: FileEdit, record: SetupRecord) -> BsdError | None:
    """Write a file without its additions, then update the record; return the problem, if any."""
    try:
        if edit.action != "keep":
            _write(edit)
    except BsdError as problem:
        return problem
    record.put(agent, edit.path, edit.recorded)
    if not record.has_file(edit.path):
        made = record.made.pop(edit.path, None)
        if made is not None and edit.content is None:
            remove_empty(made.directories)
    return None


def _write(edit: FileEdit) -> None:
    file = edit.file
    if file is None:  # unreadable, so no change is planned
        return
    content = None if edit.content is None else edit.content.encode()
    if content is not None:
        make_directories(file.target)
    is_private = SetupPart.SKILL not in edit.parts
    replace_foreign(file, content, private=is_private, lock=edit.lock)

"""verify and doctor: whether all is still there, and what could be in the way (SPEC §7)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from bsd.actions.verb import RootHands, Verb, argument
from bsd.core.definition import Answer, contract
from bsd.core.errors import BsdError, Forbidden
from bsd.maintenance import verify
from bsd.maintenance.doctor import Check, Level, clock, examine, versions
from bsd.maintenance.file_owners import wrongly_owned
from bsd.maintenance.verify import Verification


@dataclass(frozen=True, slots=True)
class Verify:
    """Of all sessions, and all that was taken out of them."""

    repair: bool = field(default=False, metadata=argument("Mend what can be mended."))


def _verify(hands: RootHands, asked: Verify) -> Verification:
    if not asked.repair:
        return verify.verify(hands.layout)
    return verify.verify(
        hands.layout,
        repair=True,
        progress=hands.progressed,
        remark=lambda name: hands.surgeon(name, writes=True).remark(name),
    )


VERIFY = Verb(
    name="verify",
    arguments=Verify,
    answer=Verification,
    ask=_verify,
    changes=True,
    about="""
    Every placeholder has a file whose hash is right, every file is indexed, nothing is in flight.
    --repair mends what can be mended and lists the rest. Exit code 1 if something is left.
    """,
    examples=("bsd verify", "bsd verify --repair"),
)


@dataclass(frozen=True, slots=True)
class Examine:
    """This machine, and one root. What root has to `repair` is refused, where it was not done."""

    repair: bool = field(
        default=False, metadata=argument("As root: give its owner what root made there.")
    )


@dataclass(frozen=True, slots=True)
class Examined(Answer):
    """What was looked at, and how it went."""

    ok: bool = field(metadata=contract("No check failed; warnings do not count"))
    checks: tuple[Check, ...]


def _examine(hands: RootHands, asked: Examine) -> Examined:
    if asked.repair:
        root = hands.layout.root
        if any(each.uid != os.geteuid() for each in wrongly_owned(root, os.environ)):
            hint = f"`sudo bsd --root {root} doctor --repair`"
            raise Forbidden("only root can give away what belongs to root", hint=hint)
    checks = tuple(_checks(hands))
    return Examined(not any(check.level is Level.FAIL for check in checks), checks)


def _checks(hands: RootHands) -> Iterator[Check]:
    try:
        layout = hands.layout
    except BsdError as error:  # without a root there is nothing else to look at
        yield versions()
        for one in error.errors:
            yield Check("settings", Level.FAIL, f"{one.field}: {one.message}")
        yield Check("settings", Level.FAIL, error.message, error.hint)
        return
    yield from examine(layout)
    yield Check("settings", Level.OK, f"valid; the root is {layout.root}")
    try:
        config = hands.config.current
    except BsdError as error:
        yield Check("config", Level.FAIL, error.message, error.hint)
        return
    file = layout.config_file
    state = "valid" if file.exists() else "not there yet; the defaults hold"
    yield Check("config", Level.OK, f"{file} is {state}; enabled: {str(config.enabled).lower()}")
    yield clock(layout, config.retention, config.trash_retention)


DOCTOR = Verb(
    name="doctor",
    arguments=Examine,
    answer=Examined,
    ask=_examine,
    about="""
    Looks at owner and permissions, settings, what the file system guarantees, free space, inotify
    limits, locks, agents that moved to SQLite, and the store. Changes nothing, unless --repair is
    given by root: then what root has made in another user's root is that user's. Exit code 1 if a
    check fails; warnings do not count.
    """,
    examples=(
        "bsd doctor",
        "sudo bsd --root /home/ada/.openclaw doctor --repair",
        "bsd doctor --json | jq '.checks[] | select(.level != \"ok\")'",
    ),
)

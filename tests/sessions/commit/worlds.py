"""Processes that act around a commit: which of them write, and at which step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.sessions.commit import program
from tests.sessions.commit.led_writers import Hand, Script, Stage
from tests.sessions.commit.ledger import line

Act = Callable[[Stage], None]


@dataclass(frozen=True)
class World:
    """Writers, and the events after each step."""

    at: Mapping[str, Act] = field(default_factory=dict)
    scripts: tuple[Script, ...] = ()


def _once(hand: Hand) -> None:
    hand.append()


def _once_durably(hand: Hand) -> None:
    hand.append(durable=True)


def _holds(hand: Hand) -> None:
    """Open, write, keep the file open until the committer has ended, write again."""
    hand.open()
    hand.write(durable=True)
    hand.wait()
    hand.write(durable=True)
    hand.close()


def _twice(hand: Hand) -> None:
    hand.append()
    hand.append()


def _only_holds(hand: Hand) -> None:
    hand.open()
    hand.wait()
    hand.close()


def _reads_and_rewrites_later(hand: Hand) -> None:
    """A gateway that compacts: it later writes the lines that it read while the new file was at the
    path.
    """
    content = hand.path.read_bytes()
    hand.wait()
    added = line(hand.writer, 0)
    other = hand.path.with_suffix(".tmp")
    other.write_bytes(content + added)
    other.rename(hand.path)
    hand.ledger.wrote(added)


def _blocked(number: int) -> Act:
    def act(stage: Stage) -> None:
        stage.writers[number].go_and_block(os.stat(stage.path).st_ino)

    return act


def _rewrites_displaced(stage: Stage) -> None:
    """It opened the path before the exchange in order to rewrite it, and does so now."""
    added = line("rewriter", 0)
    content = stage.displaced.read_bytes() + added
    stage.displaced.write_bytes(content)
    stage.ledger.wrote(added)


def _appends_durably(stage: Stage) -> None:
    for number in range(2):
        data = line("gateway", number)
        fd = os.open(stage.path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, data)
        os.fsync(fd)
        stage.ledger.wrote(data, os.fstat(fd).st_ino, durable=True)
        os.close(fd)


def _renames(stage: Stage) -> None:
    program.renames_away(stage.path, stage.ledger)


def _deletes(stage: Stage) -> None:
    stage.ledger.dropped(stage.original)
    stage.ledger.deleted()
    stage.path.unlink()


def _replaces(stage: Stage) -> None:
    """Put a file with a line more at the path."""
    added = line("rewriter", 0)
    other = stage.path.with_suffix(".tmp")
    other.write_bytes(stage.original + added)
    other.rename(stage.path)
    stage.ledger.wrote(added)


WORLDS = {
    "quiet": World(),
    # Resolved the old name, waits for the lease, writes into the displaced file: drained.
    "drained": World({"verified": _blocked(0)}, (_once,)),
    "drained, durably": World({"verified": _blocked(0)}, (_once_durably,)),
    # The same, but keeps it open: undone.
    "held": World({"verified": _blocked(0)}, (_holds,)),
    # Another process waits for the new file meanwhile: let in, carried back.
    "held and awaited": World(
        {"verified": _blocked(0), "exchanged": _blocked(1)}, (_holds, _twice)
    ),
    "held and awaited, durably": World(
        {"verified": _blocked(0), "exchanged": _blocked(1)}, (_holds, _once_durably)
    ),
    "held and read": World(
        {"verified": _blocked(0), "exchanged": _blocked(1)},
        (_only_holds, _reads_and_rewrites_later),
    ),
    "rewritten after the exchange": World({"draining": _rewrites_displaced}),
    "appended to after the exchange": World({"released": _appends_durably}),
    "renamed before the exchange": World({"verified": _renames}),
    "renamed after the exchange": World(
        {"verified": _blocked(0), "exchanged": _renames}, (_holds,)
    ),
    "deleted before the exchange": World({"verified": _deletes}),
    "replaced before the exchange": World({"verified": _replaces}),
    "replaced after the exchange": World(
        {"verified": _blocked(0), "exchanged": _replaces}, (_holds,)
    ),
    "held and deleted": World({"verified": _blocked(0), "exchanged": _deletes}, (_holds,)),
}

"""`bsd memory`: the facts that agents keep, and how they fade."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from bsd import __version__
from bsd.actions.parameters import KEYS, all_words
from bsd.cli.call import BsdCommand, Call, group, library_command
from bsd.cli.output import note, one_line, print_json, print_table, say
from bsd.core.errors import Invalid
from bsd.memory import actions, verbs
from bsd.memory.actions import MemoryStats, StoredFact
from bsd.memory.decay import PrunedFacts
from bsd.memory.facts import Fact
from bsd.memory.memory import Memory, open_memory

_MORE = """
The database is memory/facts.db in the root, the one that OpenClaw's plugin hybrid-memory uses; both
may use it at the same time. Lifetimes and words stand in [memory] of bsd.toml.

\b
Examples:
  bsd memory store "We decided to use tabs" --entity style
  bsd memory recall "tabs or spaces" --limit 3
  bsd memory lookup style
  bsd memory prune --dry-run
  bsd memory checkpoint save --intent "rename it" --state "half done"
"""


memory = group("memory", _MORE, usual="stats")


def _open(call: Call, writes: bool, /) -> Memory:
    call.log(writes=writes)
    return open_memory(call.layout, call.settings.memory if call.settings else None)


# --- what people are told ---


def _say_stored(done: StoredFact) -> None:
    if not done.created:
        say("Similar memory already exists.")
        return
    about = f" [entity: {done.entity}]" if done.entity else ""
    say(f'Stored: "{one_line(done.text, 100)}"{about} [decay: {done.decay_class}]')
    note(f"id {done.id}")


def _say_recalled(found: actions.RecallAnswer) -> None:
    _print(found.results, [f"{one.score:.2f}" for one in found.results])


def _say_looked_up(found: actions.LookupAnswer) -> None:
    _print(found.results, [f"{one.confidence:.2f}" for one in found.results])


def _print(facts: Sequence[Fact], marks: list[str]) -> None:
    if not facts:
        say("Nothing was found.")
        return
    rows = [
        (mark, fact.id, fact.decay_class, fact.entity or "", one_line(fact.text, 200))
        for fact, mark in zip(facts, marks, strict=True)
    ]
    print_table(("SCORE", "ID", "CLASS", "ENTITY", "TEXT"), rows, last_may_shrink=True)


def _say_confirmed(done: actions.ConfirmedFact) -> None:
    say(f"Confirmed: {done.id}, {_until(done)}")


def _until(fact: Fact) -> str:
    if fact.expires_at is None:
        return "for ever"
    try:
        return time.strftime("until %Y-%m-%d %H:%M UTC", time.gmtime(fact.expires_at))
    except (OverflowError, OSError, ValueError):  # another program's number, beyond all calendars
        return f"until {fact.expires_at}"


def _say_forgotten(done: actions.ForgottenFact) -> None:
    say(f'Forgotten: {done.id} "{one_line(done.text, 60)}"')


def _say_pruned(done: PrunedFacts) -> None:
    if done.dry_run:
        say(f"Would prune: {done.expired} expired facts")
        say(f"Would soft-prune: {done.deleted} low-confidence, {done.decayed} decayed")
    else:
        say(f"Hard-pruned: {done.expired} expired")
        say(f"Soft-pruned: {done.deleted} low-confidence")
        say(f"Decayed: {done.decayed}")
    if done.vectors_orphaned is not None:
        say(f"Vectors without a fact: {done.vectors_orphaned}")
    if done.vectors_deleted:
        say(f"Vectors deleted: {done.vectors_deleted}")
    if done.vectors_pending:
        note(f"{done.vectors_pending} vectors could not be deleted; the next prune tries again")


def _say_backfilled(done: actions.BackfillAnswer) -> None:
    if not done.reclassified:
        say("All facts already properly classified.")
        return
    say("Reclassified:")
    for name, count in done.reclassified.items():
        say(f"  {name}: {count}")


def _say_stats(found: MemoryStats) -> None:
    vectors = found.vectors or 0
    say(f"bsd {__version__} ({found.database})")
    say(f"SQLite facts:    {found.facts}")
    say(f"LanceDB vectors: {'unknown' if found.vectors_problem else vectors}")
    say(f"Total: {found.facts + vectors} (with overlap)")
    say("\nBy decay class:")
    for name, count in found.by_class.items():
        say(f"  {name:<12} {count}")
    if found.expired:
        say(f"\nExpired (pending prune): {found.expired}")
    if found.vectors_problem:
        note(found.vectors_problem)


# --- the commands ---


def _one_wins(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "soft": given["soft"] and not given["hard"]}


_LIMIT: dict[str, Any] = {"type": click.IntRange(min=1), "show_default": True}
_AS_OF = click.Option(["--as-of"], type=int, metavar="SECONDS", help=verbs.AS_OF)
_HARD = click.Option(
    ["--hard"], is_flag=True, help="Only delete what has expired (wins over --soft)."
)

for _command in (
    library_command(
        verbs.STORE, "store", _open, _say_stored, own={"source_date": None, "expires_at": None}
    ),
    library_command(
        verbs.RECALL,
        "recall",
        _open,
        _say_recalled,
        own={"query": all_words("query"), "limit": click.Option(["--limit"], default=5, **_LIMIT)}
        | {"as_of": _AS_OF},
    ),
    library_command(
        verbs.LOOKUP,
        "lookup",
        _open,
        _say_looked_up,
        own={"limit": click.Option(["--limit"], default=100, **_LIMIT)},
    ),
    library_command(verbs.CONFIRM, "confirm", _open, _say_confirmed),
    library_command(verbs.FORGET, "forget", _open, _say_forgotten),
    library_command(verbs.PRUNE, "prune", _open, _say_pruned, own={"hard": _HARD}, said=_one_wins),
    library_command(verbs.BACKFILL, "backfill-decay", _open, _say_backfilled),
    library_command(verbs.STATS, "stats", _open, _say_stats),
):
    memory.add_command(_command)


@memory.command("checkpoint", cls=BsdCommand)
@click.argument("action", required=False, metavar="save|restore")
@click.option("--intent", metavar="TEXT", help="What is about to be done.")
@click.option("--state", metavar="TEXT", help="How things stand.")
@click.option("--expected-outcome", metavar="TEXT", help="What should come of it.")
@click.option("--working-files", metavar="A,B", type=KEYS, help="The files that matter.")
@click.pass_obj
def checkpoint(call: Call, /, action: str | None, **said: Any) -> None:
    """Keep what is about to be done, or show the last that was kept."""
    match action:
        case "save":
            if not said["intent"] or not said["state"]:
                raise Invalid(
                    "--intent and --state required for save",
                    hint="`bsd memory checkpoint save --intent TEXT --state TEXT`",
                )
            _save(call, verbs.SaveCheckpoint(**said))
        case "restore":
            _restore(call)
        case _:
            raise Invalid("Usage: checkpoint <save|restore>", hint="`bsd memory checkpoint --help`")


def _save(call: Call, asked: verbs.SaveCheckpoint) -> None:
    with _open(call, True) as opened:
        done = verbs.SAVE_CHECKPOINT.act(opened, asked)
    call.answer(done, lambda saved: say(f"Checkpoint saved: {saved.id}"))


def _restore(call: Call) -> None:
    with _open(call, False) as opened:
        found = verbs.RESTORE_CHECKPOINT.act(opened, verbs.NoArguments())
    call.answer(found, _say_checkpoint)


def _say_checkpoint(found: actions.CheckpointAnswer) -> None:
    if found.checkpoint is None:
        say("No active checkpoint.")
    else:
        print_json(found.checkpoint)

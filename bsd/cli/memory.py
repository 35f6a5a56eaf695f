"""`bsd memory`: the facts that agents keep, and how they fade."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from bsd import __version__
from bsd.cli.call import BsdGroup, Call
from bsd.cli.completion import KEYS
from bsd.cli.output import note, one_line, print_json, print_table, say
from bsd.core.errors import Invalid
from bsd.memory import actions
from bsd.memory.decay import PrunedFacts
from bsd.memory.facts import Fact, FactFilter
from bsd.memory.memory import Memory, open_memory
from bsd.memory.new_fact import NewFact

id_argument = click.argument("id", metavar="ID")
tag_option = click.option("--tag", metavar="TAG", help="Only facts with this tag.")
refresh_option = click.option(
    "--refresh/--no-refresh",
    default=True,
    help="Extend the life of the facts that are shown, or change no fact.",
)


def _open(call: Call, *, writes: bool) -> Memory:
    call.log(writes=writes)
    return open_memory(call.layout, call.settings.memory)


@click.group("memory", cls=BsdGroup, invoke_without_command=True)
@click.pass_context
def memory_group(context: click.Context, /) -> Any:
    """Keep facts that agents know; they fade unless recalled.

    The database is memory/facts.db in the root, the same that OpenClaw's plugin hybrid-memory uses;
    both can use it at the same time. [memory] in bsd.toml sets lifetimes and words.

    \b
    Examples:
      bsd memory store "We decided to use tabs" --entity style
      bsd memory recall "tabs or spaces" --limit 3
      bsd memory lookup style
      bsd memory prune --dry-run
      bsd memory checkpoint save --intent "rename it" --state "half done"
    """
    if context.invoked_subcommand is None:
        return context.invoke(stats_command)
    return None


@memory_group.command("store")
@click.argument("text", metavar="TEXT")
@click.option("--entity", metavar="NAME", help="The person or thing that the fact is about.")
@click.option("--key", metavar="KEY", help="The property of the entity.")
@click.option("--value", metavar="VALUE", help="The value of that property.")
@click.option(
    "--category",
    metavar="NAME",
    default="other",
    show_default=True,
    help="For instance preference, fact, decision, entity.",
)
@click.option(
    "--source",
    metavar="NAME",
    default="conversation",
    show_default=True,
    help="Where it comes from.",
)
@click.option("--summary", metavar="TEXT", help="The same in short.")
@click.option("--tags", metavar="A,B", type=KEYS, help="Words to find it by later.")
@click.option(
    "--class",
    "decay_class",
    metavar="CLASS",
    help="The class, which sets its lifetime; default: by its words.",
)
@click.option("--confidence", type=float, default=1.0, show_default=True, help="0 to 1.")
@click.option("--importance", type=float, default=0.7, show_default=True, help="0 to 1.")
@click.option("--supersedes", metavar="ID", help="Id of the fact that this fact replaces.")
@click.pass_obj
def store_command(call: Call, /, **fact: Any) -> None:
    """Keep a fact, unless there is already a fact with the same text."""
    with _open(call, writes=True) as memory:
        answer = actions.store(memory, NewFact(**fact))
    call.answer(answer, tell_stored)


def tell_stored(fact: actions.StoredFact) -> None:
    if not fact.created:
        say("Similar memory already exists.")
        return
    about = f" [entity: {fact.entity}]" if fact.entity else ""
    say(f'Stored: "{one_line(fact.text, 100)}"{about} [decay: {fact.decay_class}]')
    note(f"id {fact.id}")


@memory_group.command("recall")
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@click.option("--limit", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--entity", metavar="NAME", help="Only facts about this.")
@tag_option
@click.option("--include-expired", is_flag=True, help="Also facts that have expired.")
@click.option(
    "--include-superseded",
    is_flag=True,
    help="Also facts that other facts have replaced.",
)
@click.option(
    "--as-of", type=int, metavar="SECONDS", help="Facts that held at this time (epoch seconds)."
)
@refresh_option
@click.pass_obj
def recall_command(
    call: Call, /, words: tuple[str, ...], limit: int, refresh: bool, **only: Any
) -> None:
    """Find the facts that contain any of the words, the best first."""
    with _open(call, writes=refresh) as memory:
        answer = actions.recall(
            memory, " ".join(words), limit=limit, only=FactFilter(**only), refresh=refresh
        )
    call.answer(
        answer,
        lambda answer: tell_facts(answer.results, [f"{fact.score:.2f}" for fact in answer.results]),
    )


@memory_group.command("lookup")
@click.argument("entity", metavar="ENTITY")
@click.argument("key", required=False, metavar="[KEY]")
@tag_option
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@refresh_option
@click.pass_obj
def lookup_command(
    call: Call, /, entity: str, key: str | None, tag: str | None, limit: int, refresh: bool
) -> None:
    """Show the facts about one entity, the most certain first."""
    with _open(call, writes=refresh) as memory:
        answer = actions.lookup(
            memory, entity, key, limit=limit, only=FactFilter(tag=tag), refresh=refresh
        )
    call.answer(
        answer,
        lambda answer: tell_facts(
            answer.results, [f"{fact.confidence:.2f}" for fact in answer.results]
        ),
    )


def tell_facts(facts: Sequence[Fact], scores: Sequence[str]) -> None:
    if not facts:
        say("Nothing was found.")
        return
    rows = [
        (score, fact.id, fact.decay_class, fact.entity or "", one_line(fact.text, 200))
        for fact, score in zip(facts, scores, strict=True)
    ]
    columns = ("SCORE", "ID", "CLASS", "ENTITY", "TEXT")
    print_table(columns, rows, last_may_shrink=True, spare=("CLASS", "ENTITY"))


@memory_group.command("confirm")
@id_argument
@click.pass_obj
def confirm_command(call: Call, /, id: str) -> None:
    """Confirm that a fact still holds: its lifetime begins anew, with full confidence."""
    with _open(call, writes=True) as memory:
        answer = actions.confirm(memory, id)
    call.answer(answer, lambda fact: say(f"Confirmed: {fact.id}, {_until(fact)}"))


def _until(fact: Fact) -> str:
    if fact.expires_at is None:
        return "for ever"
    try:
        return time.strftime("until %Y-%m-%d %H:%M UTC", time.gmtime(fact.expires_at))
    except (OverflowError, OSError, ValueError):  # another program's number, beyond all calendars
        return f"until {fact.expires_at}"


@memory_group.command("forget")
@id_argument
@click.pass_obj
def forget_command(call: Call, /, id: str) -> None:
    """Delete a fact and its vector for good."""
    with _open(call, writes=True) as memory:
        answer = actions.forget(memory, id)
    call.answer(answer, lambda fact: say(f'Forgotten: {fact.id} "{one_line(fact.text, 60)}"'))


@memory_group.command("prune")
@click.option("--hard", is_flag=True, help="Only delete expired facts (overrides --soft).")
@click.option("--soft", is_flag=True, help="Only fade facts that are not recalled.")
@click.option("--vectors", is_flag=True, help="Also find and delete vectors without a fact.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def prune_command(call: Call, /, hard: bool, soft: bool, vectors: bool, dry_run: bool) -> None:
    """Delete expired facts, and fade those that are not recalled."""
    with _open(call, writes=not dry_run) as memory:
        answer = actions.prune(
            memory, hard=hard or not soft, soft=not hard, vectors=vectors, dry_run=dry_run
        )
    call.answer(answer, tell_pruned)


def tell_pruned(done: PrunedFacts) -> None:
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


@memory_group.command("backfill-decay")
@click.pass_obj
def backfill_command(call: Call, /) -> None:
    """Determine the class of each fact again, and when the fact expires."""
    with _open(call, writes=True) as memory:
        answer = actions.backfill(memory)
    call.answer(answer, tell_backfilled)


def tell_backfilled(done: actions.BackfillAnswer) -> None:
    if not done.reclassified:
        say("All facts already properly classified.")
        return
    say("Reclassified:")
    for name, count in done.reclassified.items():
        say(f"  {name}: {count}")


@memory_group.command("stats")
@click.pass_obj
def stats_command(call: Call, /) -> None:
    """Count the facts, by class, and the expired ones."""
    with _open(call, writes=False) as memory:
        answer = actions.stats(memory)
    call.answer(answer, tell_stats)


def tell_stats(found: actions.MemoryStats) -> None:
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


@memory_group.command("checkpoint")
@click.argument("action", required=False, metavar="save|restore")
@click.option("--intent", metavar="TEXT", help="The planned work.")
@click.option("--state", metavar="TEXT", help="The current state.")
@click.option("--expected-outcome", metavar="TEXT", help="The expected result.")
@click.option("--working-files", metavar="A,B", type=KEYS, help="The files that matter.")
@click.pass_obj
def checkpoint_command(
    call: Call, /, action: str | None, intent: str | None, state: str | None, **more: Any
) -> None:
    """Save a note of planned work, or show the last one."""
    if action == "save":
        if not intent or not state:
            hint = "`bsd memory checkpoint save --intent TEXT --state TEXT`"
            raise Invalid("--intent and --state required for save", hint=hint)
        with _open(call, writes=True) as memory:
            saved = actions.save_checkpoint(memory, intent, state, **more)
        call.answer(saved, lambda fact: say(f"Checkpoint saved: {fact.id}"))
    elif action == "restore":
        with _open(call, writes=False) as memory:
            answer = actions.restore_checkpoint(memory)
        call.answer(answer, tell_checkpoint)
    else:
        raise Invalid("Usage: checkpoint <save|restore>", hint="`bsd memory checkpoint --help`")


def tell_checkpoint(found: actions.CheckpointAnswer) -> None:
    if found.checkpoint is None:
        say("No active checkpoint.")
    else:
        print_json(found.checkpoint)

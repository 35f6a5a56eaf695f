"""`bsd memory`: the facts that agents keep, and how they fade."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from bsd.doors.cli.call import BsdCommand, Call
from bsd.doors.cli.commands import COMMANDS
from bsd.doors.cli.output import note, one_line, print_json, print_table, say

if TYPE_CHECKING:
    from bsd.memory.fact import Fact
    from bsd.memory.facts import Memory

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


class _Memory(click.Group, BsdCommand):
    """A group that is a command as well, when nothing follows."""


@click.group(
    "memory",
    cls=_Memory,
    invoke_without_command=True,
    help=f"{COMMANDS['memory'].help}\n\n{_MORE}",
)
@click.pass_context
def memory(context: click.Context, /) -> None:
    if context.invoked_subcommand is None:
        _stats(context.obj)


def _open(call: Call, *, writes: bool = True) -> Memory:
    from bsd.memory.opening import open_memory

    call.log(writes=writes)
    return open_memory(call.layout, call.settings.memory if call.settings else None)


_ENTITY = click.option("--entity", metavar="NAME", help="Only facts about this.")
_TAG = click.option("--tag", metavar="TAG", help="Only facts with this tag.")
_REFRESH = click.option(
    "--refresh/--no-refresh",
    default=True,
    help="Whether this keeps the facts alive; without, nothing is changed.",
)


@memory.command("store", cls=BsdCommand)
@click.argument("text", metavar="TEXT")
@click.option("--entity", metavar="NAME", help="Whom or what it is about.")
@click.option("--key", metavar="KEY", help="Which of its properties.")
@click.option("--value", metavar="VALUE", help="The value of that.")
@click.option("--class", "decay_class", metavar="CLASS", help="Else the words tell it.")
@click.option("--confidence", type=float, default=1.0, show_default=True, help="0 to 1.")
@click.option("--importance", type=float, default=0.7, show_default=True, help="0 to 1.")
@click.option("--category", default="other", show_default=True, metavar="NAME")
@click.option("--source", default="conversation", show_default=True, metavar="NAME")
@click.option("--summary", metavar="TEXT", help="The same in short.")
@click.option("--tags", default="", metavar="A,B", help="With commas.")
@click.option("--supersedes", metavar="ID", help="The fact whose place it takes.")
@click.pass_obj
def store(call: Call, /, text: str, tags: str, **fields: Any) -> None:
    """Keep a fact, unless one of the same text is there already."""
    from bsd.memory.new_fact import NewFact

    with _open(call) as opened:
        done = opened.store(NewFact(text, tags=tuple(tags.split(",")), **fields))
    if call.json:
        print_json(done.as_json())
    elif not done.created:
        say("Similar memory already exists.")
    else:
        fact = done.fact
        about = f" [entity: {fact.entity}]" if fact.entity else ""
        say(f'Stored: "{one_line(fact.text, 100)}"{about} [decay: {fact.decay_class}]')
        note(f"id {fact.id}")


@memory.command("recall", cls=BsdCommand)
@click.argument("query", nargs=-1, required=True, metavar="WORDS...")
@click.option("--limit", type=click.IntRange(min=1), default=5, show_default=True)
@_ENTITY
@_TAG
@click.option("--include-expired", is_flag=True, help="Also those that are to be pruned.")
@click.option("--include-superseded", is_flag=True, help="Also what was true before.")
@click.option("--as-of", type=int, metavar="SECONDS", help="What held then (epoch seconds).")
@_REFRESH
@click.pass_obj
def recall(call: Call, /, query: tuple[str, ...], limit: int, refresh: bool, **wanted: Any) -> None:
    """Find the facts that hold any of the words, the best first."""
    from bsd.memory.recall import WantedFacts

    with _open(call, writes=refresh) as opened:
        found = opened.recall(
            " ".join(query), limit=limit, wanted=WantedFacts(**wanted), refresh=refresh
        )
    if call.json:
        print_json({"query": " ".join(query), "results": [one.as_json() for one in found]})
        return
    _print([one.fact for one in found], [f"{one.score:.2f}" for one in found])


@memory.command("lookup", cls=BsdCommand)
@click.argument("entity", metavar="ENTITY")
@click.argument("key", required=False, metavar="[KEY]")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@_TAG
@_REFRESH
@click.pass_obj
def lookup(
    call: Call, /, entity: str, key: str | None, limit: int, tag: str | None, refresh: bool
) -> None:
    """Show what is known about one entity, the surest first."""
    from bsd.memory.recall import WantedFacts

    with _open(call, writes=refresh) as opened:
        found = opened.lookup(
            entity, key, limit=limit, wanted=WantedFacts(tag=tag), refresh=refresh
        )
    if call.json:
        print_json({"entity": entity, "key": key, "results": [one.as_json() for one in found]})
        return
    _print(found, [f"{one.confidence:.2f}" for one in found])


@memory.command("confirm", cls=BsdCommand)
@click.argument("id", metavar="ID")
@click.pass_obj
def confirm(call: Call, /, id: str) -> None:
    """Say that a fact still holds: it begins anew, with full confidence."""
    with _open(call) as opened:
        fact = opened.confirm(id)
    _tell(call, "confirmed", fact, f"Confirmed: {fact.id}, {_until(fact)}")


@memory.command("forget", cls=BsdCommand)
@click.argument("id", metavar="ID")
@click.pass_obj
def forget(call: Call, /, id: str) -> None:
    """Delete a fact for good, and its vector."""
    with _open(call) as opened:
        fact = opened.forget(id)
    _tell(call, "forgotten", fact, f'Forgotten: {fact.id} "{one_line(fact.text, 60)}"')


@memory.command("prune", cls=BsdCommand)
@click.option("--hard", is_flag=True, help="Only delete what has expired (wins over --soft).")
@click.option("--soft", is_flag=True, help="Only let fade what nobody recalls.")
@click.option("--vectors", is_flag=True, help="Also find and delete vectors without a fact.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def prune(call: Call, /, hard: bool, soft: bool, vectors: bool, dry_run: bool) -> None:
    """Delete what has expired, and let fade what nobody recalls."""
    with _open(call, writes=not dry_run) as opened:
        done = opened.prune(hard=hard or not soft, soft=not hard, dry_run=dry_run, orphans=vectors)
    if call.json:
        print_json(done.as_json())
        return
    if dry_run:
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


@memory.command("backfill-decay", cls=BsdCommand)
@click.pass_obj
def backfill_decay(call: Call, /) -> None:
    """Find the class of all facts anew, and when they expire by it."""
    with _open(call) as opened:
        changed = opened.backfill()
    if call.json:
        print_json({"reclassified": changed})
    elif not changed:
        say("All facts already properly classified.")
    else:
        say("Reclassified:")
        for name, count in changed.items():
            say(f"  {name}: {count}")


@memory.command("stats", cls=BsdCommand)
@click.pass_obj
def stats(call: Call, /) -> None:
    """Count facts, by class, and those that are to be pruned."""
    _stats(call)


def _stats(call: Call) -> None:
    from bsd import __version__

    with _open(call, writes=False) as opened:
        found = opened.stats()
    if call.json:
        print_json(found)
        return
    vectors = found["vectors"] or 0
    say(f"bsd {__version__} ({found['database']})")
    say(f"SQLite facts:    {found['facts']}")
    say(f"LanceDB vectors: {'unknown' if found['vectors_problem'] else vectors}")
    say(f"Total: {found['facts'] + vectors} (with overlap)")
    say("\nBy decay class:")
    for name, count in found["by_class"].items():
        say(f"  {name:<12} {count}")
    if found["expired"]:
        say(f"\nExpired (pending prune): {found['expired']}")
    if found["vectors_problem"]:
        note(found["vectors_problem"])


@memory.command("checkpoint", cls=BsdCommand)
@click.argument("action", required=False, metavar="save|restore")
@click.option("--intent", metavar="TEXT", help="What is about to be done.")
@click.option("--state", metavar="TEXT", help="How things stand.")
@click.option("--expected-outcome", metavar="TEXT", help="What should come of it.")
@click.option("--working-files", metavar="A,B", help="With commas.")
@click.pass_obj
def checkpoint(call: Call, /, action: str | None, **said: str | None) -> None:
    """Keep what is about to be done, or show the last that was kept."""
    match action:
        case "save":
            _save_checkpoint(call, **said)
        case "restore":
            _restore_checkpoint(call)
        case _:
            from bsd.foundation.errors import Invalid

            raise Invalid("Usage: checkpoint <save|restore>", hint="`bsd memory checkpoint --help`")


def _save_checkpoint(
    call: Call,
    *,
    intent: str | None,
    state: str | None,
    expected_outcome: str | None,
    working_files: str | None,
) -> None:
    if not intent or not state:
        from bsd.foundation.errors import Invalid

        raise Invalid(
            "--intent and --state required for save",
            hint="`bsd memory checkpoint save --intent TEXT --state TEXT`",
        )
    files = [name.strip() for name in working_files.split(",")] if working_files else None
    with _open(call) as opened:
        fact = opened.save_checkpoint(
            intent, state, expected_outcome=expected_outcome, working_files=files
        )
    if call.json:
        print_json({"saved": True, **fact.as_json()})
    else:
        say(f"Checkpoint saved: {fact.id}")


def _restore_checkpoint(call: Call) -> None:
    with _open(call, writes=False) as opened:
        found = opened.restore_checkpoint()
    if call.json:
        print_json({"checkpoint": found})
    elif found is None:
        say("No active checkpoint.")
    else:
        print_json(found)


def _print(facts: list[Fact], marks: list[str]) -> None:
    if not facts:
        say("Nothing was found.")
        return
    rows = [
        (mark, fact.id, fact.decay_class, fact.entity or "", one_line(fact.text, 200))
        for fact, mark in zip(facts, marks, strict=True)
    ]
    print_table(("SCORE", "ID", "CLASS", "ENTITY", "TEXT"), rows, last_may_shrink=True)


def _tell(call: Call, done: str, fact: Fact, text: str) -> None:
    print_json({done: True, **fact.as_json()}) if call.json else say(text)


def _until(fact: Fact) -> str:
    if fact.expires_at is None:
        return "for ever"
    try:
        return time.strftime("until %Y-%m-%d %H:%M UTC", time.gmtime(fact.expires_at))
    except (OverflowError, OSError, ValueError):  # another program's number, beyond all calendars
        return f"until {fact.expires_at}"

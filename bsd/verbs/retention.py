"""retention: what was kept long enough is archived or deleted, or it is said what would go."""

from __future__ import annotations

from dataclasses import dataclass, field

from bsd.care.retention import Retention, RetentionRun, forecast_all
from bsd.foundation.ages import Ages, look, trust
from bsd.verbs.verb import RootHands, Route, Verb, argument


@dataclass(frozen=True, slots=True)
class CleanUp:
    """One run over everything that is kept for a time."""

    dry_run: bool = field(
        default=False,
        metadata=argument("Say what would go, and when; change nothing.", query=True),
    )
    forget: bool = field(
        default=False,
        metadata=argument("Delete extracted content for good instead of archiving it.", query=True),
    )
    trust_clock: bool = field(
        default=False,
        metadata=argument("The clock is right, though it was put forward.", people_only=True),
    )


def _run(hands: RootHands, asked: CleanUp) -> Retention:
    layout, config, clock = hands.layout, hands.config, hands.clock
    if asked.dry_run:
        ages = Ages(clock()) if asked.trust_clock else look(layout, clock, keep=False)
        return forecast_all(layout, config.current, ages, forget=asked.forget)
    if asked.trust_clock:
        trust(layout)
    started = clock()
    run = RetentionRun(layout, actor=hands.actor, clock=clock, stopping=hands.stopping)
    done = run.clean_all(config.current, forget=asked.forget)
    if done.held is None:
        config.note_run("last_retention_run_at", started)
    hands.cleaned()
    return done


RETENTION = Verb(
    name="retention",
    arguments=CleanUp,
    answer=Retention,
    ask=_run,
    changes=True,
    route=Route(
        "POST",
        "/api/retention/run",
        "run_retention",
        "Archive or delete what was kept long enough, or say what would go.",
        tag="trash",
    ),
)

"""Plans what seed 003's context tool is asked for, under the settings as they are."""

from __future__ import annotations

from collections.abc import Sequence

from bsd.agents.dialect import Format
from bsd.foundation.pruning_fields import PruningConfig
from bsd.surgery.discard import plan_discard
from bsd.surgery.plan import Plan, Source
from bsd.surgery.replace import plan_replace
from bsd.surgery.rules import Policy
from bsd.surgery.targets import ContextChanged, Discard, Replacement, Target


def plan_context(
    source: Source,
    fmt: Format,
    targets: Sequence[Target],
    config: PruningConfig,
    *,
    include_user: bool = False,
) -> tuple[Plan, ContextChanged]:
    """Plan targets of one action, all of them or none; raises Refused."""
    tools, binds = config.protected_tools, Policy.of(config).binds
    ranges = [target for target in targets if isinstance(target, Replacement)]
    if ranges:
        return plan_replace(
            source, fmt, ranges, include_user=include_user, protected_tools=tools, binds=binds
        )
    entries = [target for target in targets if isinstance(target, Discard)]
    return plan_discard(
        source, fmt, entries, include_user=include_user, protected_tools=tools, binds=binds
    )

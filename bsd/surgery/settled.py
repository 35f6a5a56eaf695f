"""Which outcomes are settled: no later line and no passing of time can change them (DESIGN §3).

A checkpoint that is out of date may hide something that could leave its session; it can never make
an edit wrong, since edits are made of the lines that were read.
"""

from __future__ import annotations

import hashlib
import json

from bsd.foundation.pruning_fields import UNSETTLING, PruningConfig
from bsd.store.state import Checkpoint
from bsd.surgery.policy import Policy
from bsd.surgery.rules import Reason
from bsd.surgery.survey import Outcome, Survey

# Settled wherever the entry stands.
_ANYWHERE = frozenset(
    (
        Reason.NO_ENTRY_ID,
        Reason.UNSAFE_ENTRY_ID,
        Reason.DUPLICATE_ENTRY_ID,
        Reason.ALREADY_EXTRACTED,
        Reason.PINNED,
        Reason.UNDONE,
        Reason.TYPE_NOT_MATCHED,
    )
)
# Settled once the entry is older than every rule's window: before, a rule that fits another of
# its values may still have its say. What a signature binds, it binds until a compaction takes it
# out of sight; a checkpoint says whether there is such an entry before it.
_WHEN_OLD = frozenset(
    (
        Reason.EXTRACT,
        Reason.VALUES_TOO_SMALL,
        Reason.PREFIX_BOUND,
        Reason.TOO_LARGE_IN_MEMORY,
        "not_editable",
    )
)

# Of the rules by which entries are judged: what earlier ones settled is looked at again.
_RULES = 2


def fingerprint(config: PruningConfig) -> str:
    """Tell settings apart by which entries are judged: what one settles, it settles for itself."""
    decides = {name: value for name, value in config.as_json().items() if name in UNSETTLING}
    text = json.dumps(decides | {"rules": _RULES}, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Settling:
    """Follows the outcomes of a survey, as far as they are settled without a gap."""

    def __init__(self, survey: Survey, policy: Policy) -> None:
        self._survey = survey
        self._window = max((trigger.keep_recent for trigger in policy.triggers), default=0)
        self._rows = 0
        self._shift = 0  # bytes by which what follows moves
        self._end: Outcome | None = None  # the first that is not settled
        self._unbinds = False  # a signature leaves that binds what is before it
        self._bound = False  # one binds an entry before the end

    def add(self, outcome: Outcome, reason: str, shift: int = 0) -> None:
        """Go on past an entry, if `reason` settles it; `shift` is how much longer its line gets."""
        if reason == Reason.EXTRACT and self._survey.signed:
            self._unbinds |= any(one.value.removes for one in outcome.decision.chosen)
        if self._end is not None:
            return
        settled = reason in _ANYWHERE or (reason in _WHEN_OLD and outcome.position >= self._window)
        # A turn that begins before the checkpoint would not be known after it, and a line without
        # its end is still being written.
        whole = outcome.offset < self._survey.end_offset
        open_still = outcome.held or self._survey.turn_open(outcome.index)
        if not (settled and whole) or open_still:
            self._end = outcome
            return
        self._rows += 1
        self._shift += shift
        self._bound |= outcome.bound

    def stop(self, outcome: Outcome) -> None:
        """End here, at an entry that was not looked at."""
        self._end = self._end or outcome

    def checkpoint(self) -> Checkpoint | None:
        """Return where to begin next time, once the plan is in effect; None: at the first line."""
        if self._unbinds:
            return None
        offset = self._end.offset if self._end else self._survey.end_offset
        return self._survey.checkpoint(self._rows, offset + self._shift, bound=self._bound)

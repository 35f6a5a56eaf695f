"""The rule keeps its bound on recorded sessions, at all prices of SPEC §3a."""

from __future__ import annotations

import pytest

from tests.bench.cost_table import PRICES, STARTS, WITH_A_STEP, policy, sessions, shares_by_rule

BOUND = 1.1
# Sessions that take little time; cutting at once exceeds the bound in them.
NAMES = ("claude-code-short", "codex-rollout", "04", "15", "16")


def test_no_recorded_session_costs_more_than_a_tenth_above_changing_nothing() -> None:
    found = list(sessions([policy(3, 500)], NAMES))
    if not found:
        pytest.skip("no recorded sessions here")
    cells = [(prices, start) for prices in (*PRICES, WITH_A_STEP) for start in STARTS]
    shares = [shares_by_rule(found, *cell, ("pays",))["pays"] for cell in cells]

    assert max(share.worst for share in shares) <= BOUND
    assert sum(share.share for share in shares) < 0.97 * len(shares)  # it does cut
    assert shares_by_rule(found, PRICES[0], 0.5, ("now",))["now"].worst > BOUND

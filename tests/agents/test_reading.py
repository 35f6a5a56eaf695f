"""Times as entries tell them."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.agents.entry import time_ms
from tests.daemon.zones import zone

MIDNIGHT = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize("where", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_time_without_an_offset_is_utc_wherever_the_machine_stands(where: str) -> None:
    with zone(where):
        assert time_ms("2026-01-01T00:00:00") == MIDNIGHT
        assert time_ms("2026-01-01T00:00:00Z") == MIDNIGHT
        assert time_ms("2026-01-01T02:00:00+02:00") == MIDNIGHT


@pytest.mark.parametrize(
    "value", [None, True, "", "yesterday", "2026-13-01", float("nan"), 10**400, [MIDNIGHT]]
)
def test_what_is_no_time(value: Any) -> None:
    assert time_ms(value) is None

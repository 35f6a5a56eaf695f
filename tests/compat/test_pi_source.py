"""pi's own SessionManager opens a session of its own directory as bsd left it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsd.foundation.pruning_config import ConfigService
from bsd.session.surgeon import Surgeon
from bsd.surgery.result import Status
from tests.agents.sources import PI
from tests.agents.sources.tree import Home, away
from tests.compat.pi import assert_same_session, assert_sendable, read

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]  # the first to come installs pi


def test_a_session_of_pis_own_directory_is_the_same_to_pi(node: str, tmp_path: Path) -> None:
    home = Home.of(PI, tmp_path, PI.lines())
    old = home.path.read_bytes()
    [before] = read(node, [home.path])
    surgeon = Surgeon(home.layout, ConfigService(home.layout.config_file))
    assert surgeon.extract(home.name, overrides={"keep_recent": 0}).status is Status.EXTRACTED
    assert away(old, home.path.read_bytes()) > 0
    [after] = read(node, [home.path])
    assert_same_session(before, after)
    assert_sendable(after)
    assert (after.lost, after.rewritten) == (0, False)

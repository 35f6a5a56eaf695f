"""Free memory goes back where the C library can give it, and nothing happens elsewhere."""

from __future__ import annotations

import ctypes
import sys
from unittest.mock import Mock

import pytest

from bsd.foundation.memory import give_back


def test_free_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = Mock(malloc_trim=Mock())
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    monkeypatch.setattr(sys, "platform", "linux")
    give_back()
    libc.malloc_trim.assert_called_once_with(0)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_library_that_cannot_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Mock(spec=[]))
    monkeypatch.setattr(sys, "platform", platform)
    give_back()

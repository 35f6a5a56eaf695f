"""Free memory goes back where the C library can give it, and nothing happens elsewhere."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from unittest.mock import Mock

import pytest

from bsd.foundation.process import give_back_memory

# Thousands of small pieces, the last of which stays: without a word glibc keeps all before it.
_PIECES = """
from bsd.foundation.process import give_back_memory

def taken():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

pieces = [bytes(1000) for _ in range(60_000)]
full = taken()
del pieces[:-1]
give_back_memory()
print(full - taken())
"""


def test_free_memory_is_given_back() -> None:
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("needs glibc")
    told = subprocess.run(
        [sys.executable, "-c", _PIECES], check=True, capture_output=True, text=True
    )
    assert int(told.stdout) > 40_000_000


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_library_that_cannot_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Mock(spec=[]))
    monkeypatch.setattr(sys, "platform", platform)
    give_back_memory()

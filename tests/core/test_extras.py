"""Packages of extras: bsd runs without them, and says how to get one where it is needed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from bsd.core.errors import Unavailable
from bsd.core.extras import EXTRAS, require_extra
from tests.waiting import DEADLINE_SECONDS

_IMPORT_ALL_WITHOUT = """\
import importlib, pkgutil, sys
from bsd.core.extras import EXTRAS
sys.modules |= dict.fromkeys(EXTRAS)  # importing one raises ModuleNotFoundError
import bsd
needing = []
for module in pkgutil.walk_packages(bsd.__path__, "bsd."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert error.name in EXTRAS, error
            needing.append(module.name)
print(*needing)
"""


def test_only_the_client_of_object_storage_cannot_be_imported_without_extras() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL_WITHOUT],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["bsd.bucket.object_storage"]), done.stderr


@pytest.mark.parametrize(
    ("pip", "hint"),
    [
        (True, f"{sys.executable} -m pip install 'brainsurgeond[s3]'"),
        (False, "pipx install --force 'brainsurgeond[s3]'"),
    ],
)
def test_the_hint_installs_an_extra_where_bsd_runs(
    pip: bool, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec("sys") if pip else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in EXTRAS else there)
    with pytest.raises(Unavailable, match="needs the package pyrage") as caught:
        require_extra("pyrage", "encryption")
    assert str(caught.value.hint).startswith(hint)

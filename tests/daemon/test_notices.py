"""The parts of a status that need a person."""

from __future__ import annotations

from typing import Any

import pytest

from bsd.daemon.notices import notices_of
from tests.http.fake_daemon import sample_status


def quiet() -> dict[str, Any]:
    """A status in which no part needs a person."""
    status = sample_status()
    status["watcher"]["problems"] = []
    status["queue"]["parked"] = []
    status["orphans"] = {"count": 0, "bytes": 0}
    return status


def test_all_well_is_no_notice() -> None:
    assert notices_of(quiet()) == []


@pytest.mark.parametrize(
    ("where", "value", "name", "text", "remedy"),
    [
        ("config", {"path": "/c", "problem": "/c: no JSON"}, "config", "broken", "correct /c"),
        ("room", {"free": 1 << 30, "size": 500 << 30}, "disk", "1.0 GB of 500.0 GB", "free some"),
        ("room", {"free": 1 << 20, "size": 32 << 20}, "disk", "1.0 MB of 32.0 MB", "free some"),
        (
            "not_copied",
            [{"session": "c:p/s", "why": "full"}],
            "copy:c:p/s",
            "c:p/s will be deleted soon by its program, and bsd cannot copy it: full",
            "`bsd archive keep c:p/s`",
        ),
        (
            "unserved",
            [{"kind": "pi", "title": "pi", "hint": "bsd agents on pi"}],
            "agent:pi",
            "pi has sessions here that bsd does not manage",
            "`bsd agents on pi`",
        ),
        (
            "unknown_forms",
            [{"source": "c", "title": "pi", "text": "1 session has a form that bsd does not know"}],
            "unknown_form:c",
            "pi: 1 session has a form that bsd does not know",
            "pip install -U brainsurgeond",
        ),
        (
            "unrecognised",
            [{"source": "c", "title": "pi", "text": "1 file grew"}],
            "unrecognised:c",
            "pi: 1 file grew",
            "update bsd",
        ),
        ("clock", "it was set", "clock", "it was set", "--trust-clock"),
        ("orphans", {"count": 1}, "orphans", "1 file of late lines", "`bsd verify`"),
    ],
)
def test_each_is_named_with_what_to_try(
    where: str, value: Any, name: str, text: str, remedy: str
) -> None:
    [notice] = notices_of(quiet() | {where: value})
    assert notice.id == name
    assert text in notice.text
    assert remedy in notice.remedy


def test_room_enough_is_no_notice() -> None:
    for free, size in ((6 << 30, 500 << 30), (2 << 20, 32 << 20)):
        assert notices_of(quiet() | {"room": {"free": free, "size": size}}) == []


def test_many_of_a_kind_are_summed_up() -> None:
    status = quiet()
    parked = [{"session": f"main/{n}", "error": "full", "failures": 5} for n in range(9)]
    status["queue"]["parked"] = parked
    found = notices_of(status)
    assert len({notice.id for notice in found}) == len(found) == 6
    assert found[-1].text == "4 more sessions were given up"


def test_an_older_daemon_lacks_members() -> None:
    status = quiet()
    for name in ("room", "not_copied", "unserved", "unknown_forms", "unrecognised"):
        del status[name]
    assert notices_of(status) == []

from __future__ import annotations

from typing import Any

import pytest

from bsd.core.answers import as_json
from bsd.core.errors import Conflict, Invalid, NotFound
from bsd.planning.edit import plan_set_extractable
from tests.planning.test_extract import message, session


@pytest.mark.parametrize("value", [True, False, 0, 7])
@pytest.mark.parametrize("previous", [None, True, False, 3, "odd"])
def test_the_member_is_set_and_taken_out_again(value: Any, previous: Any) -> None:
    more = {} if previous is None else {"_extractable": previous}
    old = session(message("e1", "user") | more)
    before = old.raw
    plan, answer = plan_set_extractable(old.source, old.fmt, "e1", value)
    old.carry_out(plan)
    assert old.entry(1)["_extractable"] is value or old.entry(1)["_extractable"] == value
    assert isinstance(old.entry(1)["_extractable"], bool) is isinstance(value, bool)
    assert as_json(answer) == {
        "updated": True,
        "entry_id": "e1",
        "extractable": value,
        "previous": previous,
    }
    again, _ = plan_set_extractable(old.source, old.fmt, "#1", value)
    assert not again.edits
    removed, answer = plan_set_extractable(old.source, old.fmt, "e1", None)
    old.carry_out(removed)
    assert answer.previous == value
    assert "_extractable" not in old.entry(1)
    if previous is None:
        assert old.raw == before


def test_nothing_to_take_out_is_no_edit() -> None:
    old = session(message("e1", "user"))
    plan, answer = plan_set_extractable(old.source, old.fmt, "e1", None)
    assert (plan.edits, answer.previous) == ((), None)


def test_refusals() -> None:
    twice = b'{"type":"message","id":"e1","_extractable":true,"_extractable":false}\n'
    old = session(twice)
    with pytest.raises(Invalid):
        plan_set_extractable(old.source, old.fmt, "e1", -1)
    with pytest.raises(NotFound):
        plan_set_extractable(old.source, old.fmt, "nobody", True)
    with pytest.raises(NotFound):
        plan_set_extractable(old.source, old.fmt, "#0", True)  # the header
    with pytest.raises(Conflict):
        plan_set_extractable(old.source, old.fmt, "e1", True)

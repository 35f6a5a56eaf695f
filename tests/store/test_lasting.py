"""What stood where a `_restored` of ours stands is what stood there before the first of them."""

from __future__ import annotations

import pytest

from bsd.store.entry_notes import Stamp, Stamps, learn


@pytest.mark.parametrize("before", [None, b'"theirs"'])
def test_later_stamps_stand_for_what_was_before_the_first(before: bytes | None) -> None:
    known: Stamps = {}
    learn(known, [Stamp("e1", b'"1"', present=before, original=before)])
    learn(known, [Stamp("e1", b'"2"', present=b'"1"', original=b'"1"')])
    learn(known, [Stamp("e1", b'"3"', present=b'"2"', original=before)])
    assert known == {"e1": {b'"1"': before, b'"2"': before, b'"3"': before}}

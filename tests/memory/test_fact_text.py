"""What makes two texts the same, and what no database holds."""

from __future__ import annotations

import hashlib

from bsd.memory.database import normalized_hash, storable
from bsd.memory.recall import expression


def test_case_and_spaces_make_no_difference() -> None:
    expected = hashlib.sha256(b"ada likes tea").hexdigest()
    assert normalized_hash("  Ada\n likes\tTEA ") == expected
    assert normalized_hash("Ada likes teas") != expected
    assert normalized_hash(None) is None


def test_what_cannot_be_stored_is_replaced() -> None:
    assert storable("a\0b\ud800c é") == "a b?c é"


def test_a_query_is_any_of_its_words() -> None:
    assert expression("tea 'or' \"coffee\" I x AND") == '"tea" OR "or" OR "coffee" OR "AND"'
    assert expression('"" \' a') == ""
    assert expression("xx " * 5000) == expression("xx " * 1000), "or FTS5 would take minutes"

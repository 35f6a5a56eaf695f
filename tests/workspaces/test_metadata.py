"""Metadata: any content is understood or refused in words, and no data is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsd.core.answers import as_json
from bsd.core.errors import Invalid
from bsd.workspaces.place import Skip, Unusable, check_id
from bsd.workspaces.record import SessionMetadata, kept_of, parse

NOW = 1_800_000_000.0
_KNOWN = {"session_id", "created_at", "updated_at", "version", "execution_count", "last_error"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=4,
)


def test_it_is_written_as_json_that_people_can_read() -> None:
    raw = SessionMetadata.new("a", NOW).render()
    assert raw.startswith(b'{\n  "session_id": "a",\n  "created_at": "2027-01-15T08:00:00.000Z"')
    assert raw.endswith(b"\n}\n")
    assert parse(raw, "a") == SessionMetadata.new("a", NOW)


@given(st.dictionaries(st.text(), json_values))
@settings(max_examples=25)
def test_unknown_fields_survive_every_change(other: dict[str, Any]) -> None:
    other = {name: value for name, value in other.items() if name not in _KNOWN}
    document = {**as_json(SessionMetadata.new("a", NOW)), **other}
    metadata = parse(json.dumps(document).encode(), "a").touched(NOW + 5).executed(NOW + 9, "bad")
    after = json.loads(metadata.render())
    assert {name: after[name] for name in other} == other
    assert (after["execution_count"], after["last_error"]) == (1, "bad")
    assert after["updated_at"] == "2027-01-15T08:00:09.000Z"


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=50)
def test_whatever_stands_there_is_understood_or_refused(raw: bytes) -> None:
    try:
        parse(raw, "a")
    except Unusable as problem:
        assert problem.detail  # noqa: PT017 - it may raise, or not


@given(st.sampled_from(sorted(_KNOWN)), json_values)
@settings(max_examples=50)
def test_whatever_one_field_holds(field: str, value: Any) -> None:
    document = {**as_json(SessionMetadata.new("a", NOW)), field: value}
    try:
        metadata = parse(json.dumps(document).encode(), "a")
    except Unusable as problem:
        assert problem.skip in set(Skip)  # noqa: PT017 - as above
    else:
        assert metadata.session_id == "a"
        assert metadata.execution_count >= 0
        assert metadata.updated_at.tzinfo is UTC


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2500, 1, 1)))  # noqa: DTZ001
@settings(max_examples=50)
def test_times_of_every_zone_are_the_same_moment(moment: datetime) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))
    document = {"created_at": aware.isoformat(), "updated_at": aware.isoformat()}
    assert parse(json.dumps(document).encode(), "a").updated_at == aware


def test_a_long_error_is_cut() -> None:
    assert len(SessionMetadata.new("a", NOW).executed(NOW, "x" * 9999).last_error or "") == 500


def test_what_a_broken_file_still_tells_is_kept() -> None:
    fresh = SessionMetadata.new("a", NOW)
    assert kept_of(None, fresh) == kept_of(b"{ x", fresh) == kept_of(b"[]", fresh) == fresh
    kept = kept_of(b'{"execution_count": 3, "last_error": "e", "tag": [1], "version": 7}', fresh)
    assert (kept.execution_count, kept.last_error, kept.other) == (3, "e", {"tag": [1]})
    assert kept.version == 1


def test_age() -> None:
    metadata = SessionMetadata.new("a", NOW)
    assert metadata.age_hours(NOW + 7200) == 2
    assert metadata.age_hours(NOW - 3600) == -1


@pytest.mark.parametrize("name", ["a", "A-1", "x@host:1+2", "0" * 200, "_", "-"])
def test_ids(name: str) -> None:
    assert check_id(name) == name


@pytest.mark.parametrize("name", [None, 7, b"a", "a\n", "a\0", "a/b", "..", "x" * 201])
def test_what_is_no_id(name: Any) -> None:
    with pytest.raises(Invalid):
        check_id(name)

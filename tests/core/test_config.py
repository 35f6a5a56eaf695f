"""The runtime settings, field by field: both sides of every bound, and messages for bad values."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bsd.core.config import (
    JOBS,
    NOTED,
    PER_CALL,
    PREFIX_BOUND_MODELS,
    SETTINGS,
    TRIGGER_TYPES,
    UNSETTLING,
    PruningConfig,
    check_cron,
    setting_descriptions,
    unknown_field,
)
from bsd.core.errors import Invalid
from bsd.core.formatting import DAY, HOUR, lifetime_seconds
from bsd.transcripts.agents.format import VALUE_TYPES


def complaint(field: str, value: object) -> str:
    """The message about a bad value, which must be the only one."""
    with pytest.raises(Invalid) as caught:
        PruningConfig.from_json({field: value})
    (error,) = caught.value.errors
    assert error.field == field
    assert caught.value.message == error.message
    return error.message


def test_every_default_would_be_accepted() -> None:
    assert PruningConfig.from_json(PruningConfig().as_json()) == PruningConfig()


def test_the_types_are_those_of_the_formats() -> None:
    assert TRIGGER_TYPES == VALUE_TYPES


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("keep_recent", 0, 100),
        ("min_value_length", 0, 100_000),
        ("keep_chars", 0, 10_000),
        ("age_threshold_hours", 0, 87_600),
        ("scan_interval_seconds", 10, 3600),
        ("keep_after_restore_seconds", 0, 86_400),
        ("archive_max_bytes", 0, 1 << 53),
    ],
)
def test_numbers(field: str, least: int, most: int) -> None:
    for good in (least, most):
        assert getattr(PruningConfig.from_json({field: good}), field) == good
    assert complaint(field, least - 1) == (
        f"{field}: Input should be greater than or equal to {least}, not {least - 1}"
    )
    for large in (most + 1, 2**70):
        assert complaint(field, large).startswith(
            f"{field}: Input should be less than or equal to {most}, not "
        )
    for bad in (True, "3", None, [3]):
        assert complaint(field, bad).startswith(f"{field}: Input should be a valid ")
    if field != "age_threshold_hours":
        for fraction in (least + 0.5, float(least), float("nan")):
            assert complaint(field, fraction).startswith(
                f"{field}: Input should be a valid integer, not "
            )


def test_hours_may_be_fractions() -> None:
    for hours in (0.5, 1.25, 87_600.0):
        config = PruningConfig.from_json({"age_threshold_hours": hours})
        assert config.age_threshold_hours == hours
        assert PruningConfig.from_json(config.as_json()) == config
    whole = PruningConfig.from_json({"age_threshold_hours": 2}).as_json()["age_threshold_hours"]
    assert (whole, type(whole)) == (2, int), "it is written as it was given"
    for bad in (-0.5, 87_600.5, float("nan"), float("inf")):
        assert complaint("age_threshold_hours", bad)


@pytest.mark.parametrize(
    "field", ["enabled", "keep_restore_remote_calls", "keep_purge_control_calls"]
)
def test_booleans(field: str) -> None:
    for good in (True, False):
        assert getattr(PruningConfig.from_json({field: good}), field) is good
    for bad in (0, 1, "true", None):
        assert complaint(field, bad).startswith(f"{field}: Input should be a valid boolean, not ")


@pytest.mark.parametrize("field", ["retention", "trash_retention"])
@pytest.mark.parametrize(
    ("value", "ms", "reason"),
    [
        ("30m", HOUR // 2, None),
        ("29m", 0, "Duration too short: 29m. Minimum: 30 minutes (30m)"),
        ("52w", 364 * DAY, None),
        ("365d", 0, "Duration too long: 365d. Maximum: 52 weeks (52w)"),
        ("never", None, None),
        ("Never", None, None),
        ("0", 0, "Invalid duration '0'. Use m, h, d, or w"),
        ("5x", 0, "Invalid duration '5x'. Use m, h, d, or w"),
        (5, 0, "Input should be a valid string, not 5"),
        (None, 0, "Input should be a valid string, not null"),
    ],
)
def test_lifetimes(field: str, value: object, ms: int | None, reason: str | None) -> None:
    if reason is None:
        seconds = lifetime_seconds(getattr(PruningConfig.from_json({field: value}), field))
        assert seconds == (None if ms is None else ms / 1000)
    else:
        assert complaint(field, value) == f"{field}: {reason}"


def test_copies_of_sessions_may_be_off() -> None:
    for text, kept in (("OFF", "off"), ("Never", "never"), ("26w", "26w")):
        assert PruningConfig.from_json({"archive_sessions": text}).archive_sessions == kept
    assert complaint("archive_sessions", "1s").startswith("archive_sessions: Invalid duration")


@pytest.mark.parametrize("field", ["auto_cron", "retention_cron"])
@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("*/2 * * * *", True),
        ("0 */6 * * *", True),
        ("@hourly", True),
        ("@Daily", True),
        ("0 9 * jan-mar MON", True),
        ("0 0 29 2 *", True),
        ("0 0 30 2 *", False),
        ("0 0 31 2 *", False),
        ("0 0 31 4,6 *", False),
        ("59 23 31 12 7", True),
        ("60 * * * *", False),
        ("* 24 * * *", False),
        ("* * 32 * *", False),
        ("* * 0 * *", False),
        ("* * * 13 *", False),
        ("* * * * 8", False),
        ("*/0 * * * *", False),
        ("99 99 99 99 99", False),
        ("* * * *", False),
        ("* * * * * *", False),
        ("@reboot", False),
        ("@", False),
        ("", False),
        ("H * * * *", False),
        ("* R * * *", False),
        ("r(1-5) * * * *", False),
        ("every day", False),
    ],
)
def test_schedules(field: str, value: str, valid: bool) -> None:
    if valid:
        assert getattr(PruningConfig.from_json({field: value}), field) == value
        return
    assert complaint(field, value).startswith(f"{field}: ")


def test_a_schedule_is_text() -> None:
    assert complaint("auto_cron", 5) == "auto_cron: Input should be a valid string, not 5"
    assert PruningConfig.from_json({"auto_cron": "  @hourly "}).auto_cron == "@hourly"


@settings(max_examples=300)
@given(
    st.text(max_size=12)
    | st.lists(st.text("0123456789*,-/#?lLwWmonjan", max_size=5), min_size=5, max_size=5).map(
        " ".join
    )
)
def test_any_text_is_a_schedule_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        check_cron(text)


@pytest.mark.parametrize(
    ("field", "good", "words"),
    [
        ("scope", ["all", "display"], "'all' or 'display'"),
        ("prefix_bound", ["skip", "extract"], "'skip' or 'extract'"),
    ],
)
def test_choices(field: str, good: list[str], words: str) -> None:
    for value in good:
        assert getattr(PruningConfig.from_json({field: value}), field) == value
    for bad in ("ALL", "", None, True):
        assert complaint(field, bad).startswith(f"{field}: Input should be {words}, not ")


@pytest.mark.parametrize("nothing", [[], None])
def test_no_types_means_no_extraction_not_the_default(nothing: object) -> None:
    assert PruningConfig.from_json({"trigger_types": nothing}).trigger_types == ()


def test_trigger_types() -> None:
    assert PruningConfig.from_json({"trigger_types": list(TRIGGER_TYPES)}).trigger_types == (
        TRIGGER_TYPES
    )
    assert complaint("trigger_types", ["user", "foo"]) == f"trigger_types[1]: {TYPES}, not 'foo'"
    for bad in ("thinking", {"thinking": 1}, 3):
        assert complaint("trigger_types", bad).startswith(
            "trigger_types: Input should be a valid list, not "
        )


TYPES = "Input should be 'thinking', 'tool_call', 'tool_result', 'assistant', 'user' or 'system'"


def test_a_rule_says_what_it_names_and_has_matchers() -> None:
    config = PruningConfig.from_json(
        {"trigger_rules": [{"type": "*"}, {"type": "user", "customType": "a|b", "n": 3, "f": 1.5}]}
    )
    assert config.trigger_rules is not None
    first, second = config.trigger_rules
    assert (first.min_length, first.keep_recent, first.keep_chars) == (None, None, None)
    assert first.role == "*"
    assert first.matchers == {}
    assert second.matchers == {"customType": "a|b", "n": 3, "f": 1.5}
    assert second.model_dump() == {
        "type": "user",
        "role": "*",
        "customType": "a|b",
        "n": 3,
        "f": 1.5,
    }


@pytest.mark.parametrize("rules", [None, []])
def test_no_rules_and_an_empty_list_of_rules_are_told_apart(rules: object) -> None:
    expected = None if rules is None else ()
    assert PruningConfig.from_json({"trigger_rules": rules}).trigger_rules == expected


@pytest.mark.parametrize(
    ("field", "most"), [("min_length", 100_000), ("keep_recent", 100), ("keep_chars", 10_000)]
)
def test_limits_of_a_rule(field: str, most: int) -> None:
    for good in (0, most):
        rule = {"type": "user", field: good}
        (checked,) = PruningConfig.from_json({"trigger_rules": [rule]}).trigger_rules or ()
        assert getattr(checked, field) == good
    for bad in (-1, most + 1, True, 1.0, "1"):
        assert complaint(
            "trigger_rules", [{"type": "user"}, {"type": "user", field: bad}]
        ).startswith(f"trigger_rules[1].{field}: Input should be ")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "[0].type: Field required"),
        ({"type": "x"}, "[0].type: Input should be 'thinking', "),
        ({"type": "*", "role": 3}, "[0].role: Input should be a valid string, not 3"),
        (
            {"type": "*", "customType": None},
            "[0].customType: a matcher is a string, a number or a boolean",
        ),
        (
            {"type": "*", "customType": ["a"]},
            "[0].customType: a matcher is a string, a number or a boolean",
        ),
        (
            {"type": "*", "min_lenght": 9},
            "[0]: min_lenght is not a known key; did you mean min_length?",
        ),
        (
            {"type": "*", "keepChars": 9},
            "[0]: keepChars is not a known key; did you mean keep_chars?",
        ),
        (3, "[0]: Input should be a valid object, not 3"),
    ],
)
def test_what_is_said_of_a_bad_rule(rule: object, message: str) -> None:
    assert complaint("trigger_rules", [rule]).startswith(f"trigger_rules{message}")


def test_all_that_is_wrong_with_a_rule_is_said() -> None:
    message = complaint("trigger_rules", [{"type": "*", "role": 1, "keep_chars": -1}])
    assert message == (
        "trigger_rules[0].role: Input should be a valid string, not 1; "
        "trigger_rules[0].keep_chars: Input should be greater than or equal to 0, not -1"
    )


def test_rules_are_an_array() -> None:
    for bad in ("thinking", {"type": "thinking"}, 3):
        assert complaint("trigger_rules", bad).startswith(
            "trigger_rules: Input should be a valid list, not "
        )


@pytest.mark.parametrize("key", ["types", "roles", "minimum", "recent", "content_length", "id"])
def test_a_key_that_resembles_no_limit_is_a_matcher(key: str) -> None:
    rules = PruningConfig.from_json({"trigger_rules": [{"type": "*", key: "x"}]}).trigger_rules
    assert rules is not None
    assert rules[0].matchers == {key: "x"}


BOUND = [
    "claude-opus-5-5",
    "claude-opus-5.5",
    "claude-opus-5.5-20260901",
    "claude-opus-5-5-20260901",
    "claude-opus-5-5@20260901",
    "claude-opus-5-10",
    "claude-sonnet-5-9",
    "claude-haiku-5-5",
    "us.anthropic.claude-haiku-5-7-v1:0",
    "claude-fable-5-1",
    "claude-fable-5.1-20260901",
    "claude-mythos-5-1",
    "claude-mythos-5-10-20270101",
    "claude-mythos-6",
    "anthropic/claude-sonnet-6",
    "claude-sonnet-6-20270101",
    "claude-sonnet-6-0",
    "claude-opus-10",
    "claude-opus-12-1",
    "claude-newname-6",
    "Claude-Opus-5-5",
]
UNBOUND = [
    "claude-opus-4-5",
    "claude-opus-4-5-20251101",
    "claude-opus-4-6",
    "claude-opus-4-10",
    "claude-opus-4-20250514",
    "claude-opus-5",
    "claude-opus-5-0",
    "claude-opus-5-4",
    "claude-opus-5-4-20260901",
    "claude-opus-5-20260901",
    "claude-opus-5@20260901",
    "claude-sonnet-5",
    "claude-sonnet-5-2026-05-05",
    "claude-haiku-5-20260101",
    "claude-haiku-5-55555555",
    "us.anthropic.claude-haiku-5-v1:0",
    "claude-fable-5",
    "claude-fable-5-0",
    "claude-fable-5-20260101",
    "claude-mythos-5",
    "claude-mythos-4-9",
    "claude-3-7-sonnet-20250219",
    "claude-3-5-haiku-20241022",
    "claude-instant-1.2",
    "claude-2.1",
    "claude-opus-20260101",
    "gpt-6-1",
    "gemini-6-pro",
    "openai/o6",
    "",
]


@pytest.mark.parametrize(
    ("model", "bound"), [(m, True) for m in BOUND] + [(m, False) for m in UNBOUND]
)
def test_models_whose_signatures_cover_the_conversation(model: str, bound: bool) -> None:
    found = [p for p in PREFIX_BOUND_MODELS if re.search(p, model, re.IGNORECASE)]
    assert bool(found) is bound


@pytest.mark.parametrize("bad", ["(", "[", "*", "(?P<a>", "a{99999999999}", "a" * 501])
def test_patterns_are_regular_expressions_of_bounded_length(bad: str) -> None:
    config = PruningConfig.from_json({"prefix_bound_models": ["^x-[a-z]+$", "a" * 500]})
    assert config.prefix_bound_models == ("^x-[a-z]+$", "a" * 500)
    message = complaint("prefix_bound_models", ["good", bad])
    assert message.startswith("prefix_bound_models[1]: ")
    assert "regular expression" in message


def test_protected_tools_are_names() -> None:
    config = PruningConfig.from_json({"protected_tools": ["read", "mcp__x__write"]})
    assert config.protected_tools == ("read", "mcp__x__write")
    for bad in ("read", [1], {"read": True}, None):
        assert complaint("protected_tools", bad).startswith("protected_tools")


@pytest.mark.parametrize("field", ["last_run_at", "last_retention_run_at"])
def test_moments(field: str) -> None:
    for good in ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00+02:00", None):
        assert getattr(PruningConfig.from_json({field: good}), field) == good
    for bad in ("yesterday", 5, ""):
        assert complaint(field, bad).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("keep_recnt", "keep_recent"),
        ("minValueLength", "min_value_length"),
        ("Enabled", "enabled"),
        ("keep_restore_call", "keep_restore_calls"),
        ("trash_retension", "trash_retention"),
    ],
)
def test_unknown_fields_name_the_nearest(name: str, meant: str) -> None:
    expected = f"{name} is not a known setting; did you mean {meant}?"
    assert unknown_field(name) == expected
    assert complaint(name, 1) == expected


def test_all_bad_fields_are_told_at_once_in_their_order() -> None:
    with pytest.raises(Invalid) as caught:
        PruningConfig.from_json(
            {"zzz": 1, "scope": 3, "trigger_types": ["x", "y"], "enabled": "no", "keep_chars": 5}
        )
    assert [error.field for error in caught.value.errors] == [
        "enabled",
        "trigger_types",
        "scope",
        "zzz",
    ]
    assert caught.value.message == ("4 settings are not valid: enabled, trigger_types, scope, zzz")
    assert caught.value.status == 400


def test_settings_in_force_cannot_be_changed_by_accident() -> None:
    config = PruningConfig()
    with pytest.raises(ValidationError):
        config.enabled = False  # type: ignore[misc]


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 100_001)
    | st.floats()
    | st.sampled_from(
        ["24h", "never", "30m", "1m", "all", "display", "skip", "0 * * * *", "@daily"]
    )
    | st.sampled_from(["2026-01-01T00:00:00Z", "x", "", [], ["thinking"], [{"type": "*"}]])
    | st.just(["thinking", "tool_result"])
    | st.just(list(PREFIX_BOUND_MODELS))
)


@given(st.dictionaries(st.sampled_from([*SETTINGS, "zzz"]), _VALUES, max_size=4))
def test_what_is_good_is_good_as_it_is_written_and_what_is_bad_is_named(
    values: dict[str, object],
) -> None:
    try:
        config = PruningConfig.from_json(values)
    except Invalid as problem:
        bad = [error.field for error in problem.errors]
        assert bad
        assert all(name in values for name in bad)
        for name, value in values.items():
            if name not in bad:
                PruningConfig.from_json({name: value})
    else:
        assert PruningConfig.from_json(config.as_json()) == config
        for name in SETTINGS.keys() - values.keys():
            assert getattr(config, name) == SETTINGS[name].default


def test_what_decides_what_leaves_unsettles_and_may_be_another_for_one_call() -> None:
    deciding = {
        *("enabled", "trigger_types", "trigger_rules", "keep_recent", "min_value_length"),
        *("keep_chars", "age_threshold_hours", "keep_after_restore_seconds", "scope"),
        *("prefix_bound", "prefix_bound_models"),
    }
    beside = {
        *("scan_interval_seconds", "auto_cron", "retention", "retention_cron", "trash_retention"),
        *("keep_restore_remote_calls", "keep_purge_control_calls", "protected_tools"),
        *("last_run_at", "last_retention_run_at"),
    }
    for told in (UNSETTLING, set(PER_CALL)):
        assert deciding <= told
        assert beside.isdisjoint(told)


def test_each_job_of_the_table_has_the_times_of_one_setting() -> None:
    assert JOBS == {
        "scan": "scan_interval_seconds",
        "auto_cron": "auto_cron",
        "retention": "retention_cron",
    }


def test_every_setting_that_users_set_is_described() -> None:
    for name, told in setting_descriptions().items():
        assert told.label
        assert told.help or told.choices, name
    assert setting_descriptions()["keep_recent"].help.endswith("(0–100).")
    assert setting_descriptions().keys() == SETTINGS.keys() - set(NOTED)

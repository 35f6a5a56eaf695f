"""`bsd doctor`: what could be in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from bsd.cli.call import Call, command
from bsd.cli.output import print_json, say, say_check

if TYPE_CHECKING:
    from bsd.lifecycle.doctor import Check


@command(
    "doctor",
    """
    Looks at owner and permissions, settings, what the file system guarantees, free space, inotify
    limits, locks, agents that moved to SQLite, and the store. Changes nothing. Exit code 1 if a
    check fails; warnings do not count.

    \b
    Examples:
      bsd doctor
      bsd doctor --json | jq '.checks[] | select(.level != "ok")'
    """,
)
@click.pass_obj
def doctor(call: Call, /) -> int:
    checks = list(_checks(call))
    failed = any(check.level == "fail" for check in checks)
    if call.json:
        print_json({"ok": not failed, "checks": [check.as_json() for check in checks]})
    else:
        for check in checks:
            _print(check)
    return 1 if failed else 0


def _checks(call: Call) -> Iterator[Check]:
    from bsd.foundation.errors import BsdError
    from bsd.lifecycle.doctor import Check, Level, clock, examine, versions

    try:
        layout = call.layout
    except BsdError as error:  # without a root there is nothing else to look at
        yield versions()
        for field in error.errors:
            yield Check("settings", Level.FAIL, f"{field.field}: {field.message}")
        yield Check("settings", Level.FAIL, error.message, error.hint)
        return
    yield from examine(layout)
    yield Check("settings", Level.OK, f"valid; the root is {layout.root}")
    try:
        config = call.pruning.current
    except BsdError as error:
        yield Check("config", Level.FAIL, error.message, error.hint)
        return
    file = layout.config_file
    state = "valid" if file.exists() else "not there yet; the defaults hold"
    yield Check("config", Level.OK, f"{file} is {state}; enabled: {str(config.enabled).lower()}")
    yield clock(layout, config.retention, config.trash_retention)


def _print(check: Check) -> None:
    say_check(check.level.value, f"{check.name:<12}{check.message}")
    if check.hint:
        say(f"{'':14}Try: {check.hint}")

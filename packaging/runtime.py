"""Lists the pinned distributions that bsd needs to run; the lock file also holds those of tests."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

TOP = Path(__file__).parents[1]


def runtime_distributions() -> list[Distribution]:
    """Return all but bsd itself, sorted by name, as installed here.

    Raises:
        SystemExit: an installed version is not the version of the lock file.
    """
    pins = _pins()
    found: dict[str, Distribution] = {}
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = _needed(project["dependencies"], "")
    seen: set[tuple[str, str]] = set()  # names, each with an extra of it or ""
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        library = found.setdefault(name, distribution(name))
        if library.version != pins.get(name):
            raise SystemExit(f"{name} {library.version} is installed, not {pins.get(name)}")
        waiting += _needed(library.requires or [], extra)
    return [found[name] for name in sorted(found)]


def _needed(lines: list[str], extra: str) -> list[tuple[str, str]]:
    """Return the distributions, and their extras, that are required on this platform."""
    wanted = [Requirement(line) for line in lines]
    return [
        (normal(each.name), each_extra)
        for each in wanted
        if each.marker is None or each.marker.evaluate({"extra": extra})
        for each_extra in ("", *each.extras)
    ]


def normal(name: str) -> str:
    """Return the normal form of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins() -> dict[str, str]:
    lines = (TOP / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return dict(line.partition(";")[0].split("==") for line in lines if "==" in line)


if __name__ == "__main__":
    for each in runtime_distributions():
        print(f"{normal(each.name)}=={each.version}")

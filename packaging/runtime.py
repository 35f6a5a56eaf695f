"""Which of the pinned distributions bsd needs to run: the lock file holds those of tests, too."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

TOP = Path(__file__).parents[1]


def runtime_distributions() -> list[Distribution]:
    """All but bsd itself, sorted by name, as installed here; each as the lock file pins it."""
    pins = _pins()
    found: dict[str, Distribution] = {}
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = _names(project["dependencies"])
    while waiting:
        name = waiting.pop()
        if name in found or name not in pins:  # not pinned: not needed on this platform
            continue
        found[name] = distribution(name)
        if found[name].version != pins[name]:
            raise SystemExit(f"{name} {found[name].version} is installed, not {pins[name]}")
        waiting += _names(found[name].requires or [])
    return [found[name] for name in sorted(found)]


def _names(requirements: list[str]) -> list[str]:
    # An extra that nobody asked for is not needed; all other conditions are about platforms.
    wanted = [re.match(r"[\w.-]+", line) for line in requirements if "extra ==" not in line]
    return [normal(found[0]) for found in wanted if found]


def normal(name: str) -> str:
    """The one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins() -> dict[str, str]:
    lines = (TOP / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return dict(line.partition(";")[0].split("==") for line in lines if "==" in line)


if __name__ == "__main__":
    for each in runtime_distributions():
        print(f"{normal(each.name)}=={each.version}")

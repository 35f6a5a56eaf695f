"""The pinned distributions that bsd needs at run time; the lock file also has those for tests."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

TOP = Path(__file__).parents[1]


def runtime_distributions() -> list[Distribution]:
    """Return the installed distributions that bsd needs, without bsd, sorted by name.

    Exits with a message if an installed version is not the one in the lock file.
    """
    pins = _pins()
    found: dict[str, Distribution] = {}
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = _names(project["dependencies"])
    while waiting:
        name = waiting.pop()
        if name in found or name not in pins:  # not pinned: this platform does not need it
            continue
        found[name] = distribution(name)
        if found[name].version != pins[name]:
            raise SystemExit(f"{name} {found[name].version} is installed, not {pins[name]}")
        waiting += _names(found[name].requires or [])
    return [found[name] for name in sorted(found)]


def _names(requirements: list[str]) -> list[str]:
    # Extras are not installed; all other conditions are about platforms.
    wanted = [re.match(r"[\w.-]+", line) for line in requirements if "extra ==" not in line]
    return [normal(found[0]) for found in wanted if found]


def normal(name: str) -> str:
    """Return the canonical spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins() -> dict[str, str]:
    lines = (TOP / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


if __name__ == "__main__":
    for each in runtime_distributions():
        print(f"{normal(each.name)}=={each.version}")

"""Print the lock file: the versions that pyproject.toml's requirements resolve to now.

Names and versions only. Hashes would tie the lock to one platform's wheels, index addresses to
one network.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any


def main() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *itertools.chain(*project["project"]["optional-dependencies"].values()),
        *itertools.chain(*project["dependency-groups"].values()),
    ]
    pip = [sys.executable, "-m", "pip", "--quiet", "install", "--dry-run", "--ignore-installed"]
    answer = subprocess.run([*pip, "--report", "-", *wanted], check=True, stdout=subprocess.PIPE)
    chosen = sorted(
        (re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(), _version(item["metadata"]))
        for item in json.loads(answer.stdout)["install"]
    )
    print("# Made by `make lock` from pyproject.toml (project, extras, groups, build backend).")
    for name, version in chosen:
        print(f"{name}=={version}")


def _version(metadata: dict[str, Any]) -> str:
    """Return the version, with a marker if newer Pythons refuse it, as they refuse a backport."""
    last = re.search(r"<\s*(3\.\d+)\b", metadata.get("requires_python", ""))
    return (
        f"{metadata['version']}; python_version < '{last[1]}'" if last else str(metadata["version"])
    )


main()

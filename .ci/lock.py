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
        (re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(), item["metadata"]["version"])
        for item in json.loads(answer.stdout)["install"]
    )
    print("# Made by `make lock` from pyproject.toml (project, extras, groups, build backend).")
    for name, version in chosen:
        print(f"{name}=={version}")


main()

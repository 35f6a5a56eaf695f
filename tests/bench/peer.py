"""cozempic, a widely used tool for this purpose: it prunes, and stores no originals."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

from tests.bench.measure import Cost, run

VERSION = "1.8.39"


def install(cache: Path) -> Path:
    """Get cozempic from PyPI into a venv of its own, once; returns its program."""
    program = cache / f"cozempic-{VERSION}" / "bin" / "cozempic"
    if not program.exists():
        home = program.parents[1]
        venv.create(home, with_pip=True, clear=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", f"cozempic=={VERSION}"], check=True)
    return program


def treat(program: Path, transcript: Path, home: Path) -> Cost:
    """Prune a transcript in place, with an empty home, no network and no installation."""
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    switches = ("NO_GLOBAL_INIT", "NO_AUTO_INIT", "NO_AUTO_UPDATE", "NO_TELEMETRY")
    env = kept | {"HOME": str(home)} | {f"COZEMPIC_{name}": "1" for name in switches}
    return run([str(program), "treat", str(transcript), "-rx", "standard", "--execute"], env)

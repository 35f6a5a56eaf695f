"""The Debian package: its scripts, its refusals, and a check that it comes and goes.

`test_release.py` builds the package as a part of a release, and calls that check.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bsd
from tests.needs import require_program
from tests.packaging.units import TOP
from tests.waiting import DEADLINE_SECONDS

_NAME = "brainsurgeond"
_SCRIPTS = TOP / "packaging" / "debian"


def _run(*argv: str, **environ: str) -> str:
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        cwd="/",  # files in the checkout must not help
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environ},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interpreter() -> Path:
    """Return Debian's Python of this version, else the Python that runs this test."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    debian = Path("/usr/bin", name)
    return debian if debian.exists() else Path(sys.executable).resolve()


def build(directory: Path) -> Path:
    require_program("dpkg-deb")
    builder = str(TOP / "packaging" / "build_deb.py")
    answer = _run(sys.executable, builder, "--interpreter", str(interpreter()), str(directory))
    return Path(answer.strip())


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_the_scripts_are_what_sh_understands(script: str) -> None:
    _run("sh", "-n", str(_SCRIPTS / script))


def test_a_package_that_could_not_work_is_not_built(tmp_path: Path) -> None:
    """The package's libraries are compiled for this Python, which Debian's own may not match."""
    require_program("dpkg-deb")
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    builder = str(TOP / "packaging" / "build_deb.py")
    for python in (other, tmp_path / "none"):
        argv = [sys.executable, builder, "--interpreter", str(python), str(tmp_path / "dist")]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"which {python} is not\nTry: rm -r .venv; make PYTHON=" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "dist").exists()


def comes_and_goes(package: Path, tmp_path: Path, openclaw_root: Path) -> None:
    """Install, use and remove the package; it leaves no files behind."""
    if os.geteuid() != 0:
        pytest.skip("only root may install packages")
    _check_content(package)
    _check_by_debians_rules(package)
    root = Path("/") if os.environ.get("CI") == "true" else _empty_system(tmp_path / "system")
    if root == Path("/") and Path("/usr/bin/bsd").exists():
        pytest.skip("there is a bsd on this system already, which stays")
    dpkg = ["dpkg", f"--root={root}", "--force-script-chrootless"]
    if root != Path("/"):
        dpkg.append("--force-depends")  # the package's Python is outside the root
    _run(*dpkg, "--install", str(package))
    try:
        listed = [root / line[1:] for line in _run(*dpkg, "--listfiles", _NAME).split("\n") if line]
        assert _run(*dpkg, "--verify", _NAME) == ""
        _use(root, openclaw_root)
        assert _run(*dpkg, "--verify", _NAME) == ""
    finally:
        _run(*dpkg, "--purge", _NAME)
    ours = [path for path in listed if _NAME in str(path) or path.name in {"bsd", "bsd@.service"}]
    assert len(ours) > 1000
    assert [path for path in ours if os.path.lexists(path)] == []
    assert not (root / "usr" / "lib" / _NAME).exists()
    assert (openclaw_root / "extracted").is_dir(), "what belongs to the user stays"


def _use(root: Path, openclaw_root: Path) -> None:
    """The program works, and writes no files to its installation directory."""
    home = root / "usr" / "lib" / _NAME
    program = [str(root / "usr" / "bin" / "bsd")]
    if root != Path("/"):  # its first line names a Python at another path
        program = [str(home / "bin" / "python3"), "-I", *program]
    assert _run(*program, "--version") == f"bsd {bsd.__version__}\n"
    assert "Usage: bsd" in _run(*program, "--help")
    there = set(home.rglob("*"))
    _run(*program, "--root", str(openclaw_root), "extract", "main/sample")
    _run(*program, "--root", str(openclaw_root), "verify")
    assert set(home.rglob("*")) == there
    python = str(home / "bin" / "python3")
    _run(python, "-I", "-B", "-c", "import bsd.mcp.server, bsd.http.app, cryptography")
    where = [*program[:-1], "-c", "import bsd, pydantic; print(bsd.__file__, pydantic.__file__)"]
    if root != Path("/"):
        assert _run(*where).count(str(home)) == 2
    else:
        unit = "/usr/lib/systemd/system/bsd@.service"
        assert _run(require_program("systemd-analyze"), "verify", "--man=no", unit) == ""


def _empty_system(root: Path) -> Path:
    """Make a directory into which dpkg installs."""
    admin = root / "var" / "lib" / "dpkg"
    for name in ("info", "updates"):
        (admin / name).mkdir(parents=True)
    (admin / "status").touch()
    python = interpreter()
    if python.is_relative_to("/usr"):  # the package reaches it by a relative link
        there = root / python.relative_to("/")
        there.parent.mkdir(parents=True)
        there.symlink_to(python)
    return root


def _check_by_debians_rules(package: Path) -> None:
    if (lintian := shutil.which("lintian")) and interpreter().is_relative_to("/usr/bin"):
        _run(lintian, "--allow-root", "--fail-on", "error,warning", str(package))


def _check_content(package: Path) -> None:
    names = {
        line.split(" ./", 1)[1].split(" -> ")[0]
        for line in _run("dpkg-deb", "--contents", str(package)).splitlines()
    }
    assert names >= {
        "usr/bin/bsd",
        "usr/lib/systemd/system/bsd@.service",
        "usr/lib/systemd/user/bsd.service",
        "usr/share/bash-completion/completions/bsd",
        "usr/share/fish/vendor_completions.d/bsd.fish",
        "usr/share/man/man1/bsd.1.gz",
        "usr/share/zsh/vendor-completions/_bsd",
        f"usr/share/doc/{_NAME}/changelog.Debian.gz",
        f"usr/share/doc/{_NAME}/copyright",
        f"usr/share/lintian/overrides/{_NAME}",
        f"usr/share/doc/{_NAME}/examples/bsd.toml",
    }
    assert any(name.endswith("/site-packages/bsd/setup/claude_hook.py") for name in names)
    assert not [name for name in names if name.startswith(("etc/", "home/", "var/"))]
    assert not [name for name in names if "/site-packages/pytest" in name], "not for users"

"""Builds the files of a release from a clean checkout. It uploads no file.

    python packaging/release.py [--url ADDRESS] [--interpreter PYTHON] [DIRECTORY]

The version is that of `bsd/__init__.py`. DIRECTORY (dist) gets:

    brainsurgeond-VERSION.tar.gz                 the source archive
    brainsurgeond-VERSION-py3-none-any.whl       the wheel
    brainsurgeond_VERSION-1_ARCHITECTURE.deb     the Debian package (build_deb.py)
    brainsurgeond-VERSION.cdx.json               CycloneDX: the libraries that bsd needs to run
    release-notes.md                             the version's section of CHANGELOG.md
    bsd.rb                                       the Homebrew formula, with url and sha256
    Dockerfile                                   the image, with its labels
    SHA256SUMS                                   of all these: sha256sum -c SHA256SUMS

All times in the files are that of the last commit, so two builds of one commit are equal.
SOURCE_DATE_EPOCH (epoch seconds) replaces it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from datetime import UTC, datetime
from pathlib import Path

from build_deb import INTERPRETER
from runtime import TOP, normal, runtime_distributions

from bsd import __version__

_NAME = "brainsurgeond"
_SHOWN = 10  # changed files in a message
# Every module can be imported without the extras, but for the one that is named.
_IMPORT_ALL = """\
import importlib, pkgutil, bsd
for module in pkgutil.walk_packages(bsd.__path__, "bsd."):
    if not module.name.endswith(".__main__") and module.name != "bsd.bucket.object_storage":
        importlib.import_module(module.name)
"""


def build(directory: Path, url: str | None, interpreter: Path) -> None:
    """Build all files into `directory`, which must be empty or missing.

    Args:
        directory: where the files are put. If a step fails, it stays as it is.
        url: the address below which the source archive will be found. Without it the formula
            names the file in `directory`.
        interpreter: the Python that the Debian package uses.

    Raises:
        SystemExit: a precondition does not hold or a step failed; its text names a remedy.
    """
    _refuse_used(directory)
    _refuse_changes()
    notes = release_notes((TOP / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    commit = _git("rev-parse", "HEAD")
    set_time()
    with tempfile.TemporaryDirectory(prefix="bsd-release-") as place:
        files = Path(place, "files")
        files.mkdir()
        _say("source archive and wheel")
        source, wheel = build_archives(files)
        _say("Debian package")
        builder = [sys.executable, str(TOP / "packaging" / "build_deb.py")]
        _run(*builder, "--interpreter", str(interpreter), str(files))
        _say("environment of the wheel, bill of materials")
        size = _install_alone(wheel, Path(place, "environment"), files)
        address = f"{url.rstrip('/')}/{source.name}" if url else (directory / source.name).as_uri()
        (files / "release-notes.md").write_text(notes, encoding="utf-8")
        (files / "bsd.rb").write_text(_formula(address, _sha256(source)), encoding="utf-8")
        (files / "Dockerfile").write_text(_dockerfile(commit), encoding="utf-8")
        sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in sorted(files.iterdir()))
        (files / "SHA256SUMS").write_text(sums, encoding="utf-8")
        shutil.copytree(files, directory, dirs_exist_ok=True)
    for path in sorted(directory.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    print(f"The wheel and its libraries take {size / (1 << 20):.1f} MB in an empty environment.")
    if not url:
        print("bsd.rb names the source archive on this machine. Before an upload: RELEASE_URL=…")


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading.

    Raises:
        SystemExit: there is no such section, or it is empty.
    """
    section = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |^\[[^\]\n]+\]: |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if section is None or not section[1].strip():
        raise SystemExit(
            f"Error: CHANGELOG.md has no section for {version}, the version in bsd/__init__.py\n"
            f"Try: a section that begins with `## [{version}] - YYYY-MM-DD`"
        )
    return f"{section[1].strip()}\n"


def set_time() -> None:
    """Set SOURCE_DATE_EPOCH, which all builders obey, to the time of the last commit."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", _git("log", "-1", "--format=%ct"))


def build_archives(directory: Path) -> tuple[Path, Path]:
    """Build the source archive and the wheel; returns their paths."""
    _run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "sdist",
        "-t",
        "wheel",
        "-d",
        str(directory),
    )
    (source,) = directory.glob("*.tar.gz")
    (wheel,) = directory.glob("*.whl")
    return source, wheel


# --- the steps ---


def _refuse_used(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        raise SystemExit(
            f"Error: {directory} is not empty, and files of two releases would be mixed there\n"
            "Try: make release, which empties dist/; or another directory"
        )


def _refuse_changes() -> None:
    """Refuse a checkout that differs from its last commit; ignored files do not matter."""
    changed = _git("status", "--porcelain").splitlines()
    if changed:
        listed = "".join(f"  {line}\n" for line in changed[:_SHOWN])
        more = f"  … and {len(changed) - _SHOWN} more\n" if len(changed) > _SHOWN else ""
        raise SystemExit(
            f"Error: these files are not as they are in the last commit:\n{listed}{more}"
            "Try: git commit, or git stash --include-untracked"
        )


def _install_alone(wheel: Path, environment: Path, files: Path) -> int:
    """Install the wheel with its pinned libraries, import it, and write the bill of materials.

    Returns:
        The bytes of the environment on the disk. It contains no pip.
    """
    venv.create(environment, with_pip=False)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python]
    pins = [f"{normal(each.name)}=={each.version}" for each in runtime_distributions()]
    _run(*pip, "install", "--no-deps", *pins)
    # Before the wheel: the bill would name the path from which it was installed.
    _write_bill(python, files / f"{_NAME}-{__version__}.cdx.json")
    _run(*pip, "install", "--no-deps", "--no-index", str(wheel))
    _run(*pip, "check")
    _run(python, "-I", "-c", _IMPORT_ALL)
    told = _run(str(environment / "bin" / "bsd"), "--version").strip()
    if told != f"bsd {__version__}":
        raise SystemExit(f"Error: the wheel's bsd --version prints {told!r}")
    return sum(path.lstat().st_blocks * 512 for path in [environment, *environment.rglob("*")])


def _write_bill(python: str, path: Path) -> None:
    """Write the CycloneDX bill of materials of an environment, without random ids."""
    project = str(TOP / "pyproject.toml")
    options = ["--pyproject", project, "--mc-type", "application", "--output-reproducible"]
    _run(sys.executable, "-m", "cyclonedx_py", "environment", *options, "-o", str(path), python)
    bill = json.loads(path.read_text(encoding="utf-8"))
    # pyproject.toml leaves the version to bsd/__init__.py, which the tool does not read.
    bill["metadata"]["component"]["version"] = __version__
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")


def _formula(address: str, sha256: str) -> str:
    # No resources: the formula has pip install the versions of the lock file.
    text = (TOP / "packaging" / "homebrew" / "bsd.rb").read_text(encoding="utf-8")
    return text.replace("@URL@", address).replace("@SHA256@", sha256)


def _dockerfile(commit: str) -> str:
    created = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    values = {
        "VERSION": __version__,
        "REVISION": commit,
        "CREATED": f"{created:%Y-%m-%dT%H:%M:%SZ}",
    }
    text = (TOP / "packaging" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"\nARG {name}=unknown\n", f"\nARG {name}={value}\n")
    return text


# --- helpers ---


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*argv: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(TOP), *argv], check=True, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise SystemExit("Error: git is not installed\nTry: apt install git") from None
    except subprocess.CalledProcessError as problem:
        raise SystemExit(
            f"Error: git {argv[0]} failed in {TOP}: {problem.stderr.strip()}\n"
            "Try: a clone of the repository; a source archive has no commits"
        ) from None
    return done.stdout.rstrip()


def _run(*argv: str) -> str:
    """Run a program; returns its standard output. If it fails, its messages are shown."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=TOP)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\nError: {' '.join(argv)} failed")
    return done.stdout


def _say(step: str) -> None:
    print(f"{step} …", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="?", type=Path, default=TOP / "dist")
    parser.add_argument("--url", help="the address below which the source archive will be found")
    parser.add_argument("--interpreter", type=Path, default=INTERPRETER, help="of the package")
    arguments = parser.parse_args()
    os.umask(0o022)
    build(arguments.directory.resolve(), arguments.url or None, arguments.interpreter)


if __name__ == "__main__":
    main()

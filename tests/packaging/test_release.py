"""The files of a release: reproducible, complete, or refused with a message."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import bsd
from tests.needs import require_program
from tests.packaging.test_debian import comes_and_goes, interpreter
from tests.packaging.units import TOP
from tests.waiting import DEADLINE_SECONDS

_VERSION = bsd.__version__
_MOST_MB = 90  # of the wheel and its libraries, installed


def run(*argv: str, cwd: Path = TOP, code: int = 0, **environ: str) -> str:
    """Run a program; return all its output."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_SECONDS,
        env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"} | environ,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def release(checkout: Path, *arguments: str, code: int = 0) -> str:
    script = str(checkout / "packaging" / "release.py")
    return run(
        sys.executable, script, *arguments, cwd=checkout, code=code, PYTHONPATH=str(checkout)
    )


def in_release(code: str) -> str:
    """Run Python code with packaging/release.py as `release`."""
    setting = f"import sys; sys.path.insert(0, {str(TOP / 'packaging')!r}); import release; "
    return run(sys.executable, "-c", setting + code)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout of the present state of the files; only clones of it may be changed."""
    require_program("git")
    place = tmp_path_factory.mktemp("release") / "checkout"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in listed.split("\0"):
        source, target = TOP / name, place / name
        if name and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode & 0o777)
    git = ["git", "-c", "user.name=bsd", "-c", "user.email=bsd@localhost"]
    run("git", "init", "--quiet", ".", cwd=place)
    run("git", "add", "--all", cwd=place)
    moment = "2026-01-02T03:04:05+00:00"
    commit = [*git, "commit", "--quiet", "-m", "all"]
    run(*commit, cwd=place, GIT_COMMITTER_DATE=moment, GIT_AUTHOR_DATE=moment)
    return place


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A clone of that checkout."""
    run("git", "clone", "--quiet", str(committed), str(tmp_path / "checkout"))
    return tmp_path / "checkout"


# --- refusals ---


def test_a_checkout_with_changes_is_refused(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed")
    (checkout / "new.py").touch()
    told = release(checkout, "out", code=1)
    assert "Error: these files are not as they are in the last commit:" in told
    assert " M README.md\n" in told
    assert "?? new.py\n" in told
    assert "Try: git commit" in told
    assert not (checkout / "out").exists()


def test_a_version_without_a_section_is_refused(checkout: Path) -> None:
    (checkout / "bsd" / "__init__.py").write_text('__version__ = "7.8.9"\n')
    git = ["git", "-c", "user.name=bsd", "-c", "user.email=bsd@localhost"]
    run(*git, "commit", "--quiet", "--all", "-m", "a version", cwd=checkout)
    told = release(checkout, "out", code=1)
    assert "Error: CHANGELOG.md has no section for 7.8.9, the version in bsd/__init__.py\n" in told
    assert "Try: a section that begins with `## [7.8.9] - YYYY-MM-DD`" in told
    assert not (checkout / "out").exists()


def test_a_directory_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "brainsurgeond-0.0.1.tar.gz").touch()
    assert f"Error: {tmp_path} is not empty" in release(TOP, str(tmp_path), code=1)


def test_files_without_commits_are_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git").rename(tmp_path / "away")
    told = release(checkout, "out", code=1)
    assert "Error: git status failed in " in told
    assert "Try: a clone of the repository" in told


@pytest.mark.parametrize(
    ("section", "notes"),
    [
        ("## [1.2.0] - 2026-01-01\n\n### Added\n\n- This.\n\n## [1.1.0]\n\n- That.\n", "- This."),
        ("## [1.2.0] - 2026-01-01\n\n### Added\n\n- This.\n\n[1.2.0]: https://x\n", "- This."),
        ("## [1.2.0]\n\n- [This] is it.\n", "- [This] is it."),
        ("## [1.2.0]\n\n## [1.1.0]\n\n- That.\n", None),
        ("## [11.2.0]\n\n- That.\n\n## [1.2.01]\n", None),
        ("", None),
    ],
)
def test_the_notes_are_the_section_of_the_version(section: str, notes: str | None) -> None:
    code = f"print(release.release_notes({'# Changelog' + chr(10) * 2 + section!r}, '1.2.0'))"
    if notes is None:
        with pytest.raises(AssertionError, match="has no section for"):
            in_release(code)
        return
    told = in_release(code).strip()
    assert told.endswith(notes)
    assert "That" not in told
    assert "## [" not in told


# --- the files ---


@pytest.mark.soak
def test_two_builds_of_a_commit_are_equal(checkout: Path, tmp_path: Path) -> None:
    """File times, umask and file modes of a clone make no difference."""
    other = tmp_path / "other"
    run("git", "clone", "--quiet", str(checkout), str(other))
    for number, path in enumerate(sorted(other.rglob("*.py"))):
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        path.chmod(path.stat().st_mode & 0o711 | 0o600)
    hashes = []
    for place, mask in ((checkout, 0o022), (other, 0o077)):
        out = tmp_path / f"out-{mask:o}"
        code = (
            f"import os, sys; os.umask({mask}); sys.path.insert(0, 'packaging'); import release; "
            "from pathlib import Path; release.set_time(); "
            f"release.build_archives(Path({str(out)!r}))"
        )
        run(sys.executable, "-c", code, cwd=place, PYTHONPATH=str(place))
        hashes.append({path.name: _sha256(path) for path in out.iterdir()})
    assert hashes[0] == hashes[1]
    assert {name.rpartition(".")[2] for name in hashes[0]} == {"gz", "whl"}


def test_libraries_of_extras_are_needed_and_those_of_tests_are_not() -> None:
    names = run(sys.executable, str(TOP / "packaging" / "runtime.py")).split()
    assert {each.split("==")[0] for each in names} >= {"mcp", "pyjwt", "cryptography", "croniter"}
    assert not [each for each in names if each.startswith(("pytest", "lancedb", "brainsurgeond"))]


def test_the_lock_file_installs_on_every_python() -> None:
    lines = (TOP / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert [each.name for each in pins] == sorted(each.name for each in pins)
    (zstd,) = (each for each in pins if each.name == "backports-zstd")
    assert zstd.marker
    assert not zstd.marker.evaluate({"python_version": "3.14"})
    assert zstd.marker.evaluate({"python_version": "3.11"})


@dataclass(frozen=True)
class Built:
    """A release, and the output of the program that built it."""

    out: Path
    told: str


@pytest.fixture(scope="module")
def built(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    require_program("dpkg-deb")
    out = tmp_path_factory.mktemp("built") / "out"
    options = ["--url", "https://example.org/bsd/", "--interpreter", str(interpreter())]
    return Built(out, release(committed, *options, str(out)))


@pytest.mark.soak  # tests/packaging/test_debian.py installs a package, too
def test_its_package_comes_and_goes(built: Built, tmp_path: Path, openclaw_root: Path) -> None:
    (package,) = built.out.glob("*.deb")
    comes_and_goes(package, tmp_path, openclaw_root)


@pytest.mark.soak  # a release is built by hand, and rarely
def test_a_release_is_complete(built: Built, committed: Path, tmp_path: Path) -> None:
    size = re.search(r"take ([\d.]+) MB in an empty environment", built.told)
    assert size
    assert float(size[1]) < _MOST_MB
    assert run("git", "status", "--porcelain", cwd=committed) == ""

    files = {path.name: path for path in built.out.iterdir()}
    source = f"brainsurgeond-{_VERSION}.tar.gz"
    deb = next(name for name in files if name.endswith(".deb"))
    bill = f"brainsurgeond-{_VERSION}.cdx.json"
    wheel = f"brainsurgeond-{_VERSION}-py3-none-any.whl"
    others = {"release-notes.md", "bsd.rb", "Dockerfile"}
    assert files.keys() == {source, wheel, deb, bill, *others, "SHA256SUMS"}
    sums = files["SHA256SUMS"].read_text().splitlines()
    assert [line.split("  ") for line in sums] == [
        [_sha256(files[name]), name] for name in sorted(files) if name != "SHA256SUMS"
    ]

    _check_bill(files[bill])
    formula = files["bsd.rb"].read_text()
    assert f'url "https://example.org/bsd/{source}"' in formula
    assert f'sha256 "{_sha256(files[source])}"' in formula
    assert "@" not in re.sub(r"python@3\.13", "", formula)
    run(require_program("ruby"), "-c", str(files["bsd.rb"]))
    image = files["Dockerfile"].read_text()
    assert f"\nARG VERSION={_VERSION}\n" in image
    assert f"\nARG REVISION={run('git', 'rev-parse', 'HEAD', cwd=committed)}" in image
    assert "\nARG CREATED=2026-01-02T03:04:05Z\n" in image
    assert "unknown" not in image
    _check_archive_builds_the_wheel(files[source], files[wheel], tmp_path / "unpacked")


def _check_bill(path: Path) -> None:
    bill = json.loads(path.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "brainsurgeond"
    assert bill["metadata"]["component"]["version"] == _VERSION
    pins = run(sys.executable, str(TOP / "packaging" / "runtime.py")).split()
    listed = [f"{each['name']}=={each['version']}" for each in bill["components"]]
    assert {re.sub(r"[._](?=.*==)", "-", each).lower() for each in listed} == set(pins)
    assert all(each["purl"].startswith("pkg:pypi/") for each in bill["components"])
    assert bill["metadata"]["timestamp"] == "2026-01-02T03:04:05+00:00"  # of the commit
    assert "file:" not in path.read_text()


def _check_archive_builds_the_wheel(source: Path, wheel: Path, place: Path) -> None:
    place.mkdir()
    run("tar", "-xzf", str(source), "-C", str(place))
    (top,) = place.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "again")]
    run(*build, cwd=top, SOURCE_DATE_EPOCH="1767323045")
    (again,) = (place / "again").iterdir()
    assert _sha256(again) == _sha256(wheel)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""Builds a Debian package of bsd with all that it needs but Python itself.

    python packaging/build_deb.py [--interpreter /usr/bin/python3.11] DIRECTORY

The libraries come from the environment that this runs in, pinned by requirements.lock: what was
tested is what is packed. They are compiled for one version of Python, and so is the package: it
should be Debian's own, `make .venv PYTHON=/usr/bin/python3`. DEBFULLNAME and DEBEMAIL, if they are
set, say who builds it.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import hashlib
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from email.utils import formatdate
from importlib.metadata import Distribution
from pathlib import Path

from runtime import TOP, normal, runtime_distributions

from bsd import __version__

_NAME = "brainsurgeond"
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
INTERPRETER = Path("/usr/bin", _PYTHON)  # Debian's own
_HOME = Path("usr/lib/brainsurgeond")  # a virtual environment in its form
_SITE = _HOME / "lib" / _PYTHON / "site-packages"
_DOC = Path("usr/share/doc") / _NAME
_DEBIAN = TOP / "packaging" / "debian"
_REVISION = 1  # of the package, for one version of bsd

# Where the other files go; a compressed one ends in .gz there.
_FILES = {
    "packaging/systemd/bsd@.service": "usr/lib/systemd/system/bsd@.service",
    "packaging/systemd/bsd.service": "usr/lib/systemd/user/bsd.service",
    "contrib/man/bsd.1": "usr/share/man/man1/bsd.1.gz",
    "contrib/completions/bsd.bash": "usr/share/bash-completion/completions/bsd",
    "contrib/completions/_bsd": "usr/share/zsh/vendor-completions/_bsd",
    "contrib/completions/bsd.fish": "usr/share/fish/vendor_completions.d/bsd.fish",
    "config/bsd.toml": f"{_DOC}/examples/bsd.toml",
    "config/config.json": f"{_DOC}/examples/config.json",
    "contrib/logrotate/bsd": f"{_DOC}/examples/logrotate",
    "contrib/nginx/bsd.conf": f"{_DOC}/examples/nginx.conf",
    "contrib/grafana/bsd.json": f"{_DOC}/examples/grafana.json",
    "contrib/prometheus/bsd.rules.yml": f"{_DOC}/examples/prometheus.rules.yml",
    "README.md": f"{_DOC}/README.md.gz",
    "CHANGELOG.md": f"{_DOC}/changelog.gz",
    "packaging/debian/lintian-overrides": f"usr/share/lintian/overrides/{_NAME}",
}
_LAUNCHER = f"""\
#!/{_HOME}/bin/python3 -I
import sys

from bsd.__main__ import main

sys.exit(main())
"""


def build(directory: Path, interpreter: Path) -> Path:
    """Build the package into `directory`; returns its path."""
    _check(interpreter)
    libraries = runtime_distributions()
    architecture = _output("dpkg", "--print-architecture")
    package = directory.resolve() / f"{_NAME}_{_version()}_{architecture}.deb"
    package.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bsd-deb-") as place:
        root = Path(place, "root")
        _lay_out_program(root, interpreter, libraries)
        for source, target in _FILES.items():
            _copy(TOP / source, root / target)
        _write(root / _DOC / "copyright", _copyright(libraries))
        (root / _DOC / "changelog.Debian.gz").write_bytes(gzip.compress(_changelog(), mtime=0))
        _make_readable(root)
        _control(root, interpreter, architecture)
        # Packing with xz takes longer than all the rest; gzip's best takes four times as long as
        # this, for 1 %.
        options = ["--root-owner-group", "-Zgzip", "-z6", "--build"]
        subprocess.run(
            ["dpkg-deb", *options, str(root), str(package)], check=True, stdout=subprocess.DEVNULL
        )
    return package


def _check(interpreter: Path) -> None:
    """Say what is needed, if this cannot become a package that works."""
    if shutil.which("dpkg-deb") is None:
        raise SystemExit("Error: there is no dpkg-deb here, which makes packages\nTry: a Debian")
    version = f"import sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    found = interpreter.exists() and subprocess.run([interpreter, "-c", version], check=False)
    if not found or found.returncode != 0:
        raise SystemExit(
            f"Error: the libraries here are compiled for {_PYTHON}, which {interpreter} is not\n"
            "Try: rm -r .venv; make PYTHON=/usr/bin/python3 deb   (Debian: python3 3.11 or newer, "
            "python3-venv)\n     or packaging/build_deb.py --interpreter: the package needs it then"
        )


def _lay_out_program(root: Path, interpreter: Path, libraries: list[Distribution]) -> None:
    site = root / _SITE
    for library in libraries:
        _copy_distribution(library, site)
    shutil.copytree(TOP / "bsd", site / "bsd", ignore=shutil.ignore_patterns("__pycache__"))
    settings = f"home = {interpreter.parent}\ninclude-system-site-packages = false\n"
    _write(root / _HOME / "pyvenv.cfg", f"{settings}version = {sys.version.split()[0]}\n")
    (root / _HOME / "bin").mkdir()
    below_usr = interpreter.is_relative_to("/usr")
    target = Path("../../..", interpreter.relative_to("/usr")) if below_usr else interpreter
    (root / _HOME / "bin" / "python3").symlink_to(target)
    _write(root / "usr/bin/bsd", _LAUNCHER)
    (root / "usr/bin/bsd").chmod(0o755)
    # Compiled here once and for all: whoever runs it, root included, writes nothing below /usr.
    compiled = compileall.compile_dir(
        site,
        maxlevels=20,
        stripdir=str(root),
        prependdir="/",
        quiet=1,
        workers=0,  # all cores
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not compiled:
        raise SystemExit("some modules cannot be compiled")


def _copy_distribution(library: Distribution, site: Path) -> None:
    for file in library.files or []:
        # Programs of its own; compiled files; its tests.
        if ".." in file.parts or "__pycache__" in file.parts or file.parts[1:2] == ("tests",):
            continue
        _copy(Path(str(library.locate_file(file))), site / file)


def _control(root: Path, interpreter: Path, architecture: str) -> None:
    """The package's own files; the scripts as they are, the rest made here."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    sums = "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  "
        f"{path.relative_to(root)}\n"
        for path in files
    )
    size = sum(path.stat().st_size for path in files) // 1024
    depends = "libc6"
    if interpreter == INTERPRETER:  # another one is not Debian's to provide
        depends += f", {_PYTHON}, python3:any"
    control = (
        (_DEBIAN / "control")
        .read_text(encoding="utf-8")
        .format(
            version=_version(),
            architecture=architecture,
            depends=depends,
            size=size,
            maintainer=_maintainer(),
        )
    )
    _write(root / "DEBIAN/control", control)
    _write(root / "DEBIAN/md5sums", sums)
    for script in ("postinst", "prerm", "postrm"):
        _copy(_DEBIAN / script, root / "DEBIAN" / script)
        (root / "DEBIAN" / script).chmod(0o755)
    (root / "DEBIAN").chmod(0o755)


def _maintainer() -> str:
    name = os.environ.get("DEBFULLNAME") or "The bsd authors"
    return f"{name} <{os.environ.get('DEBEMAIL') or 'brainsurgeond@localhost'}>"


def _changelog() -> bytes:
    """The package's own history: bsd's lies beside it."""
    when = os.environ.get("SOURCE_DATE_EPOCH") or (TOP / "CHANGELOG.md").stat().st_mtime
    text = f"""\
{_NAME} ({_version()}) unstable; urgency=medium

  * bsd {__version__}; changelog.gz says what is new in it.

 -- {_maintainer()}  {formatdate(float(when))}
"""
    return text.encode()


def _copyright(libraries: list[Distribution]) -> str:
    listed = "".join(f"  {normal(each.name)} {each.version}\n" for each in libraries)
    mine = (TOP / "LICENSE").read_text(encoding="utf-8")
    return f"{mine}\nIn /{_SITE} there are, with their own licences in *.dist-info:\n{listed}"


def _make_readable(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if runs else 0o644)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix == ".gz":
        target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))
    else:
        shutil.copyfile(source, target)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _version() -> str:
    """1.2.0rc1 comes before 1.2.0 in Debian's eyes only with a tilde."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", __version__) + f"-{_REVISION}"


def _output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where the package is put")
    parser.add_argument("--interpreter", type=Path, default=INTERPRETER)
    arguments = parser.parse_args()
    os.umask(0o022)
    print(build(arguments.directory, arguments.interpreter))


if __name__ == "__main__":
    main()

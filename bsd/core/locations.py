"""The paths of root, settings file and socket, without loading the settings; peers of the socket.

`bsd status` and completion import only this module, without pydantic.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import struct
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bsd.core.errors import ConfigError, os_problem
from bsd.core.files import LARGEST_NOTE, is_there, read_plain

# 108 bytes on Linux, 104 on macOS, with the closing NUL.
LONGEST_SOCKET_PATH = 103
_OPENCLAWS = ("agents", "openclaw.json")  # a directory with one of these belongs to OpenClaw


def home(environ: Mapping[str, str]) -> Path:
    """Return the user's home directory."""
    return Path(environ["HOME"]) if environ.get("HOME") else Path("~").expanduser()


def expand(text: str, environ: Mapping[str, str]) -> Path:
    """Make a path that a user typed absolute; `~` stands for the home directory."""
    if text == "~" or text.startswith("~/"):
        return home(environ) / text[2:]
    return Path(os.path.abspath(text))


def settings_file(environ: Mapping[str, str]) -> Path:
    """Return the default path of the settings file: `$XDG_CONFIG_HOME/bsd/bsd.toml`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification requires that a relative path is ignored.
    directory = Path(base) if base.startswith("/") else home(environ) / ".config"
    return directory / "bsd" / "bsd.toml"


def read_settings_file(path: Path, *, required: bool) -> dict[str, object]:
    """Parse the settings file; {} if it is missing and not `required`. Raises ConfigError."""
    try:
        data = read_plain(path, LARGEST_NOTE, follow=True)
    except FileNotFoundError:
        if not required:
            return {}
        hint = "name an existing file, or omit --config"
        raise ConfigError(f"there is no settings file {path}", hint=hint) from None
    except OSError as error:
        problem = os_problem(error, f"reading {path}")
        raise ConfigError(problem.message, hint=problem.hint) from error
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"{path}, line {line}: not UTF-8 text"
        raise ConfigError(what, hint="save the file as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path}{_line_of(error)}: not valid TOML: {error}",
            hint='write `key = value`, texts in quotes: log_level = "debug"',
        ) from None


def find_root(
    override: Path | str | None, environ: Mapping[str, str], in_file: object = None
) -> Path:
    """Return the absolute path of the root: the named root, else the usual root.

    Raises ConfigError if no root is named and two exist; see `usual_root`.
    """
    return named_root(override, environ, in_file) or usual_root(environ)


def named_root(
    override: Path | str | None, environ: Mapping[str, str], in_file: object = None
) -> Path | None:
    """Return the root that `--root`, the environment or the settings file names, in this order.

    `OPENCLAW_ROOT` takes precedence over the parent of `BRAINSURGEON_AGENTS_DIR`.
    """
    if override:
        return expand(str(override), environ)
    if root := environ.get("OPENCLAW_ROOT"):
        return expand(root, environ)
    if agents := environ.get("BRAINSURGEON_AGENTS_DIR"):
        return expand(agents, environ).parent
    if isinstance(in_file, str) and in_file:
        return expand(in_file, environ)
    return None


def usual_roots(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the roots that bsd uses by default: `~/.openclaw` and `$XDG_DATA_HOME/bsd`."""
    base = environ.get("XDG_DATA_HOME", "")
    # The XDG specification requires that a relative path is ignored.
    data = Path(base) if base.startswith("/") else home(environ) / ".local" / "share"
    return home(environ) / ".openclaw", data / "bsd"


def usual_root(environ: Mapping[str, str]) -> Path:
    """Return the default root: the usual root on which bsd has worked before.

    Without such a root, it is `~/.openclaw` if OpenClaw is installed, else `$XDG_DATA_HOME/bsd`.

    Raises:
        ConfigError: bsd has worked on both usual roots.
        BsdError: a directory cannot be read.
    """
    openclaw, own = usual_roots(environ)
    try:
        used = [root for root in (openclaw, own) if is_there(root / ".brainsurgeon")]
        if len(used) > 1 and not os.path.samefile(openclaw, own):
            raise ConfigError(
                f"there are two roots, {openclaw} and {own}: bsd keeps things in both",
                hint=f'name one: `root = "…"` at the top of {settings_file(environ)}, or'
                " OPENCLAW_ROOT; `--root DIR` names one for a single command",
            )
        if used:
            return used[0]
        is_openclaw = has_openclaw(environ)
    except OSError as error:
        raise os_problem(error, f"looking for the root in {openclaw} and {own}") from error
    return openclaw if is_openclaw else own


def is_set_up(environ: Mapping[str, str]) -> bool:
    """Return True if the settings name sources, or bsd has worked on the root before.

    Raises BsdError or OSError if this cannot be determined.
    """
    in_file = read_settings_file(settings_file(environ), required=False)
    if in_file.get("sources"):
        return True
    named = named_root(None, environ, in_file.get("root"))
    roots = usual_roots(environ) if named is None else (named,)
    return any(is_there(root / ".brainsurgeon") for root in roots)


def has_openclaw(environ: Mapping[str, str]) -> bool:
    """Return True if OpenClaw is in its usual directory; raises OSError."""
    openclaw, _ = usual_roots(environ)
    return any(is_there(openclaw / name) for name in _OPENCLAWS)


def find_socket(root: Path, environ: Mapping[str, str], configured: str | None = None) -> Path:
    """Return the path of the daemon's socket: the configured path, else a path in the root.

    Every root has its own socket, so that two daemons never collide. If the path in the root is too
    long for a socket, it is replaced by a hashed name in the user's runtime directory. Raises
    ConfigError if the configured path is too long.
    """
    if configured:
        path = expand(configured, environ)
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            raise ConfigError(
                f"the socket's path is longer than {LONGEST_SOCKET_PATH} bytes: {path}",
                hint="choose a shorter one; the operating system allows no more",
            )
        return path
    path = root / ".brainsurgeon" / "bsd.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16] + ".sock"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and len(os.fsencode(runtime)) + len(name) + 5 < LONGEST_SOCKET_PATH:
        return Path(runtime) / "bsd" / name
    return Path("/tmp") / f"bsd-{os.getuid()}" / name  # noqa: S108 - a 0700 directory; its owner is checked


def _line_of(error: Exception) -> str:
    found = re.search(r"at line (\d+)", str(error))
    return f", line {found[1]}" if found else ""


_ROOT = 0

# macOS: <sys/un.h> and <sys/ucred.h>; `struct xucred` begins with a version and the uid.
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_XUCRED_SIZE = 76


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the process at the other end, from the kernel; raises OSError."""
    if sys.platform == "darwin":
        told = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE)
        return int(struct.unpack_from("=2I", told)[1])
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("=iII", told)[1])  # pid, uid, gid


def may_talk_to_us(uid: int) -> bool:
    """Return True for users that may use bsd's socket: bsd's own user and root."""
    return uid in {os.geteuid(), _ROOT}


def may_be_believed(uid: int) -> bool:
    """Return True if bsd trusts a daemon of this user: the own user or root; as root, any user."""
    return uid in {os.geteuid(), _ROOT} or os.geteuid() == _ROOT

"""Where root, settings file and socket are, without loading the settings; and who answers there.

`bsd status` needs no more than this, and must not wait for pydantic.
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

from bsd.foundation.errors import ConfigError, os_problem
from bsd.foundation.files import LARGEST_NOTE, read_plain

# 108 bytes on Linux, 104 on macOS, with the closing NUL.
LONGEST_SOCKET_PATH = 103


def home(environ: Mapping[str, str]) -> Path:
    """The user's home directory."""
    return Path(environ["HOME"]) if environ.get("HOME") else Path("~").expanduser()


def expand(text: str, environ: Mapping[str, str]) -> Path:
    """Make a path as people write it absolute; `~` is the home directory."""
    if text == "~" or text.startswith("~/"):
        return home(environ) / text[2:]
    return Path(os.path.abspath(text))


def settings_file(environ: Mapping[str, str]) -> Path:
    """Where the settings are if `--config` does not say: `$XDG_CONFIG_HOME/bsd/bsd.toml`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    directory = Path(base) if base.startswith("/") else home(environ) / ".config"
    return directory / "bsd" / "bsd.toml"


def read_settings_file(path: Path, *, required: bool) -> dict[str, object]:
    """Parse the settings file; a missing one is empty unless `required`. Raises ConfigError."""
    try:
        data = read_plain(path, LARGEST_NOTE, follow=True)
    except FileNotFoundError:
        if not required:
            return {}
        hint = "name an existing file, or leave --config away"
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
    """Return the OpenClaw directory, absolute: `--root`, else the environment, else the file.

    `OPENCLAW_ROOT` goes before the parent of `BRAINSURGEON_AGENTS_DIR`; the last resort is
    `~/.openclaw`.
    """
    if override:
        return expand(str(override), environ)
    if root := environ.get("OPENCLAW_ROOT"):
        return expand(root, environ)
    if agents := environ.get("BRAINSURGEON_AGENTS_DIR"):
        return expand(agents, environ).parent
    if isinstance(in_file, str) and in_file:
        return expand(in_file, environ)
    return home(environ) / ".openclaw"


def find_socket(root: Path, environ: Mapping[str, str], configured: str | None = None) -> Path:
    """Return the daemon's socket: as configured, else beside our own things in the root.

    Every root has its own, so that two daemons never meet. A path too long for a socket becomes
    a hashed name in the user's runtime directory. Raises ConfigError if the configured one is.
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


# --- who answers at the socket ---

_ROOT = 0

# macOS: <sys/un.h> and <sys/ucred.h>; `struct xucred` begins with a version and the uid.
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_XUCRED_SIZE = 76


def peer_uid(connection: socket.socket) -> int:
    """The user whose process is at the other end, as the kernel tells; raises OSError."""
    if sys.platform == "darwin":
        told = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE)
        return int(struct.unpack_from("=2I", told)[1])
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("=iII", told)[1])  # pid, uid, gid


def may_talk_to_us(uid: int) -> bool:
    """Whether a user may use our socket: ourselves and root."""
    return uid in {os.geteuid(), _ROOT}


def may_be_believed(uid: int) -> bool:
    """Whether what a daemon of this user says is true for us: ours, root's, or we are root."""
    return uid in {os.geteuid(), _ROOT} or os.geteuid() == _ROOT

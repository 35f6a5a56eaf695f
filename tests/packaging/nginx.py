"""A real nginx with the sample configuration, in front of any server on a port."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.needs import require_program
from tests.packaging.units import TOP
from tests.waiting import wait_for

NAME = "bs.example.com"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def nginx_config(place: Path, port: int, upstream_port: int, *, slow: bool = False) -> Path:
    """Return the sample configuration without TLS, inside the smallest valid configuration.

    `slow`: only the bursts of the rate limits count, so that tests cannot pass by waiting.
    """
    sample = (TOP / "contrib" / "nginx" / "bsd.conf").read_text(encoding="utf-8")
    sample = re.sub(r"(?m)^\s*ssl_certificate.*\n", "", sample)
    sample = sample.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port};")
    sample = sample.replace("127.0.0.1:8000;", f"127.0.0.1:{upstream_port};")
    if slow:
        sample = re.sub(r"rate=\d+r/s", "rate=1r/m", sample)
    assert "ssl" not in sample
    assert NAME in sample
    (place / "bsd.conf").write_text(sample)
    paths = "".join(
        f"    {kind}_temp_path {place}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = place / "nginx.conf"
    config.write_text(
        f"daemon off;\nmaster_process off;\npid {place}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\n    access_log off;\n{paths}    include {place}/bsd.conf;\n}}\n"
    )
    return config


@contextmanager
def nginx(place: Path, upstream_port: int, *, slow: bool = False) -> Iterator[int]:
    """Run nginx; yield its port."""
    program, port = require_program("nginx"), free_port()
    config = nginx_config(place, port, upstream_port, slow=slow)
    with subprocess.Popen(
        [program, "-e", "stderr", "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as server:
        try:
            _wait_until_open(port)
            yield port
        finally:
            server.kill()


def _wait_until_open(port: int) -> None:
    def is_open() -> bool:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    wait_for(is_open, "nginx to listen")

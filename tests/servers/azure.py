"""Azurite, a server of Azure Blob Storage from npm, in a process of its own on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.compat.needed import node_modules
from tests.needs import require_node
from tests.waiting import DEADLINE_SECONDS, wait_for

# The account that Azurite has, and that its documentation names.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running server."""

    url: str

    def make_container(self, name: str) -> str:
        """Make a container; returns its URL for the settings."""
        given = {
            "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-ms-version": "2021-08-06",
        }
        lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in given.items())]
        lines += [f"/{_ACCOUNT}/{_ACCOUNT}/{name}", "restype:container"]
        sum_ = hmac.new(base64.b64decode(_KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        signed = f"SharedKey {_ACCOUNT}:{base64.b64encode(sum_).decode()}"
        asked = urllib.request.Request(
            f"{self.url}/{_ACCOUNT}/{name}?restype=container",
            method="PUT",
            headers={**given, "Authorization": signed, "Content-Length": "0"},
        )
        urllib.request.urlopen(asked, timeout=DEADLINE_SECONDS).close()
        return f"az://{name}"

    def environment(self) -> dict[str, str]:
        """Return the variables with which clients find the server."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.url,
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        }


@contextmanager
def running(directory: Path) -> Iterator[AzureServer]:
    """Run Azurite on a port that is free; skips the test if it is not installed."""
    program = node_modules("Azurite", "azure") / "azurite" / "dist" / "src" / "blob" / "main.js"
    log = directory / "azurite.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(require_node(), program, "--silent", "--blobPort", "0", "--inMemoryPersistence"),
                *("--skipApiVersionCheck", "--disableTelemetry"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
    try:

        def url() -> str:
            assert process.poll() is None, log.read_text()
            found = re.search(r"listens on (http://127\.0\.0\.1:\d+)", log.read_text())
            return found[1] if found else ""

        yield AzureServer(wait_for(url, "the port of Azurite"))
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)

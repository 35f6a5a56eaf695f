"""A file system of a few megabytes that its own user can really fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.needs import require_linux, require_program


class SmallDisk:
    """The mount point, and the file that fills the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, leave: int) -> None:
        """Leave only this many bytes free, as nearly as the blocks allow."""
        self._write(self._ballast.with_name("left"), leave)
        self._write(self._ballast, None)
        subprocess.run(["sync", "-f", self.path], check=True)  # this disk only
        self._ballast.with_name("left").unlink(missing_ok=True)

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def _write(self, path: Path, size: int | None) -> None:
        with suppress(OSError), path.open("ab", buffering=0) as file:
            while size is None or file.tell() < size:
                file.write(b"x" * 1024)


@contextmanager
def small_disk(tmp_path: Path, megabytes: int = 8, *, block: int = 1024) -> Iterator[SmallDisk]:
    """Mount a disk with blocks smaller than memory pages; skip where mounting is not allowed."""
    require_linux()
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a file system")
    make = require_program("mkfs.ext4")
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run([make, "-q", "-F", "-m", "0", "-b", str(block), image], check=True)
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-o", "loop", image, place], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"needs to mount a file system: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)

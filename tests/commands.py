"""bsd as its users call it, in this process: a command line, and the document that it prints."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsd.cli.main import run
from bsd.core.logs import close_logs


@dataclass(frozen=True)
class Ended:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the only JSON document on stdout."""
        return json.loads(self.out)


def run_here(root: Path, *arguments: str) -> Ended:
    """Run `bsd --root ROOT …` in this process, and return its output; it may fail."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run(["--root", str(root), *arguments])
    finally:
        close_logs()
    ended = Ended(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
    for said in (ended.out, ended.err):
        assert "Traceback" not in said, said
        assert "internal error" not in said.lower(), said
    return ended


@dataclass(frozen=True)
class Commands:
    """`bsd --root ROOT --json …`."""

    root: Path

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        """Return the document that a command prints; it must end with this exit code."""
        said = self.said(*arguments)
        assert said.code == code, said
        return said.document if said.out else None

    def said(self, *arguments: str) -> Ended:
        """Return the output of a command that may fail."""
        return run_here(self.root, "--json", *arguments)

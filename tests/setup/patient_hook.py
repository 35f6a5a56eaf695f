"""The command of Claude Code's hooks with a longer wait, for slow machines."""

from __future__ import annotations

import re
from pathlib import Path

from bsd.setup import claude_hook

SCRIPT = Path(claude_hook.__file__)


def patient(script: Path, seconds: float) -> Path:
    """Write a copy of the hook's script that waits this many seconds; return its path."""
    text, count = re.subn(r"(?m)^_SECONDS = 0\.025\b", f"_SECONDS = {seconds}", SCRIPT.read_text())
    assert count == 1
    script.write_text(text)
    return script

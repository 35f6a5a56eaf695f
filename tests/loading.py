"""Settings as a process with a certain environment loads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from bsd.core import settings
from bsd.core.settings import Settings


def load_settings(
    config_file: Path | None = None,
    root: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Load the settings; `environ` replaces the environment."""
    if environ is None:
        return settings.load_settings(config_file, root)
    with mock.patch.dict(os.environ, environ, clear=True):
        return settings.load_settings(config_file, root)

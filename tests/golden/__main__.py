"""Record all answers anew: `python -m tests.golden`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.golden.book import RECORD

os.environ[RECORD] = "1"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).parent), *sys.argv[1:]]))

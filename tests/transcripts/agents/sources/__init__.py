"""Made-up sessions of other programs, and conditions that hold for them after an edit."""

from tests.transcripts.agents.sources.claude_code import CLAUDE_CODE
from tests.transcripts.agents.sources.codex import CODEX
from tests.transcripts.agents.sources.pi import PI

__all__ = ["CLAUDE_CODE", "CODEX", "KINDS", "PI"]

KINDS = [CLAUDE_CODE, CODEX, PI]

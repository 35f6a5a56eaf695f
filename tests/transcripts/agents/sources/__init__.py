"""Made-up sessions of other programs, and conditions that hold for them after an edit."""

from tests.transcripts.agents.sources.claude_code import CLAUDE_CODE
from tests.transcripts.agents.sources.codex import CODEX
from tests.transcripts.agents.sources.copilot import COPILOT
from tests.transcripts.agents.sources.gemini import GEMINI
from tests.transcripts.agents.sources.oh_my_pi import OH_MY_PI
from tests.transcripts.agents.sources.pi import PI
from tests.transcripts.agents.sources.qwen import QWEN

__all__ = ["CLAUDE_CODE", "CODEX", "COPILOT", "GEMINI", "KINDS", "OH_MY_PI", "PI", "QWEN"]

KINDS = [CLAUDE_CODE, CODEX, COPILOT, GEMINI, OH_MY_PI, PI, QWEN]

"""What a model must know of bsd to work with it: seed 001's four points, and one more."""

from __future__ import annotations

INSTRUCTIONS = """\
Old large values of this session are kept outside of it, and can be had again, byte for byte, for \
as long as they are kept (a setting; 24 hours by default).

- What leaves: tool results and thinking of 500 characters or more (settings may say otherwise), \
once a few newer messages follow. In their place stands [[extracted-ID]].
- When to restore: only if you need the very text. search_extracted finds words in what is away; \
read_extracted with entry ID gives the text in its answer, and so does purge_control with action \
restore. You need not name your own session.
- What then happens: `inline` of the answer says it. Your own session is in use: you have the text \
in the answer, and it comes back inline only if you pass inline true, after the turn, and not in \
every program. What came back is not taken out again for 10 minutes (a setting), and only then are \
the call and its result tidied away.
- What must stay: purge_control with action set_extractable, the entry's ID and value false keeps \
an entry in sight for good: skills, rules, the task itself.
- Never copy a placeholder [[extracted-ID]] into a file, a command or an answer: it is not the text.
"""

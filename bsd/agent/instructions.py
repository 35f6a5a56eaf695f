"""What a model must know of bsd to work with it: seed 001's four points, and one more."""

from __future__ import annotations

INSTRUCTIONS = """\
Old large values of this session are kept outside of it, and come back on request, byte for byte.

- What leaves: tool results and thinking of 500 characters or more (settings may say otherwise), \
once a few newer messages follow. In their place stands [[extracted-ID]].
- When to restore: only if you need the very text. search_extracted finds words in what is away \
without putting it back; purge_control with action restore and entry ID puts it back.
- What then happens: the text stands where it was, in your own session from your next turn on. For \
10 minutes (a setting) it is not taken out again, however many messages follow; after that it may \
be. Calls of these tools and their results are tidied away when the turn is over.
- What must stay: purge_control with action set_extractable, the entry's ID and value false keeps \
an entry in sight for good: skills, rules, the task itself.
- Never copy a placeholder [[extracted-ID]] into a file, a command or an answer: it is not the text.
"""

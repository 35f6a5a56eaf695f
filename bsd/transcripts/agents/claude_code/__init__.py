"""Claude Code: what it writes, where, and what bsd adds to its files.

`format` reads its entries, `records` those that it never sends, `usage` their figures of the prompt
cache; `program` its directories and processes, `history` its prompts; `hooks` reads what its hooks
say; `setup` names what bsd adds to its configuration.
"""

"""Claude Code: its lines, its files, and the additions of bsd to them.

`format` reads its entries, `records` those that it never sends, `usage` the figures of the prompt
cache; `program` its directories and processes, `history` its prompts; `hooks` reads the calls of
its hooks; `setup` lists the additions of bsd to its configuration.
"""

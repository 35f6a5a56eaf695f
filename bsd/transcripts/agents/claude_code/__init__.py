"""Claude Code: its lines, its files, and bsd's additions to them.

`format` reads its entries, `records` the lines that it never sends, `usage` the figures of the
prompt cache; `program` its directories and processes, `history` its prompts. `hooks` reads the
calls of its hooks, and `setup` lists bsd's additions to its configuration.
"""

"""Recorded answers of bsd, to the last field: a change of the code shows as a difference.

`python -m tests.golden` records anew; `git diff` then shows the differences.
"""

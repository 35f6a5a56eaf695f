"""What bsd answered when it was recorded, to the last field: whoever rebuilds it sees what changed.

`python -m tests.golden` records anew; what differs then stands in `git diff`.
"""

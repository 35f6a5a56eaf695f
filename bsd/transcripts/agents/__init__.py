"""The programs whose sessions bsd works on: what each of them writes, and how it keeps it.

`format` is what bsd may know of the lines they write, `program` what of the programs themselves;
`programs` tells whose an agent's sessions are, and which root serves a source. Each program is a
file or a package of its own; `entry` and `values` are what they read in the same way.
"""

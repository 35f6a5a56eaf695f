"""The programs whose sessions bsd works on: the lines that each writes, and where it keeps them.

`format` is the interface of the lines, `program` the interface of the programs. `programs` maps an
agent to the program that writes its sessions, and a source to the root that serves it. Each program
is a module or a package; `entry` and `values` read the parts that their lines share.
"""

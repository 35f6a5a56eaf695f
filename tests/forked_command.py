"""bsd as other programs start it, forked by a server that has loaded it (`forked.py`).

`python -I -S forked_command.py SOCKET ARGUMENTS` hands its standard streams, its environment and
its directory to the server, passes signals on, and ends as the command ends. It imports no module
of bsd, because it must start fast.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(path: str, arguments: list[str]) -> int:
    """Have the server run the command; return its exit code."""
    order = {
        "arguments": arguments,
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "memory": None,
    }
    text = json.dumps(order).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(text)
        for number in (0, 1):  # a reader of stdout waits until all copies of it are closed
            os.close(number)
        answers = connection.makefile("r", encoding="utf-8")
        pid = int(answers.readline())
        for passed in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(passed, lambda number, _: os.kill(pid, number))
        code = int(answers.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

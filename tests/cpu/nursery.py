"""Forks clients that have imported PyTorch already, which takes a client seconds otherwise.

    nursery.py FD

imports PyTorch once and then, for each message [socket of the server, code] that arrives on the
socket FD with three files, forks a process with them as its input, output and errors, which
executes the code, and answers with its number. A message [number] is answered with that process's
exit code. A test that is about how a program starts or ends starts one of its own instead.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import NoReturn

import torch._dynamo  # noqa: F401  (optimizers and comparisons import it, or parts of it)


def become(files: list[int], server: str, code: str) -> NoReturn:
    """Executes code in this process and ends it as a program ends, which gives back its handles."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.environ["MNEMOSYNE_SOCKET"] = server
    exec(compile(code, "<client>", "exec"), {"__name__": "__main__"})
    sys.exit()


def main(sock: socket.socket) -> None:
    while True:
        message, files, _, _ = socket.recv_fds(sock, 1 << 16, 3)
        if not message:
            return
        wanted = json.loads(message)
        if not files:
            answer = os.waitstatus_to_exitcode(os.waitpid(wanted[0], 0)[1])
        elif (answer := os.fork()) == 0:
            sock.close()
            become(files, *wanted)
        for file in files:
            os.close(file)
        sock.send(json.dumps(answer).encode())


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

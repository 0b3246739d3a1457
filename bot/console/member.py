"""One of several processes, besides the one that listens: it gets its settings from that one, and serves."""

from __future__ import annotations

import gc
import pickle
import socket
import sys
from typing import IO

from bot import processes


def main() -> None:
    """Read the program, which takes longest, then the settings on standard input; serve until asked to end."""
    name, end = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    end.set_inheritable(False)
    processes.belong_to_parent(int(sys.argv[3]), name)
    gc.disable()  # until `memory.settle_in`
    become(name, end, sys.stdin.buffer)


def become(name: str, end: socket.socket, source: IO[bytes]) -> None:
    """Wait for the settings, then serve until asked to end."""
    from bot import serving  # noqa: PLC0415 - this is what takes long
    from bot.console.common import run_work  # noqa: PLC0415
    from bot.core import log_output  # noqa: PLC0415
    from bot.web.handover import Channel  # noqa: PLC0415

    given = source.read()
    if not given:
        return  # the process that started us has ended
    settings = pickle.loads(given)  # noqa: S301 - by the process that started us
    log_output.configure(fmt=settings.log_format, level=settings.log_level)
    run_work(serving.serve_as(name, settings, Channel(end)))


if __name__ == "__main__":
    main()

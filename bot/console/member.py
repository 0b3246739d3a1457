"""One process of the family, started by `ootbot serve`: its settings come on standard input."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1  # of sys/prctl.h


def main() -> None:
    """Read the program, which takes longest, then the settings; then serve until told to end."""
    name, end = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    end.set_inheritable(False)
    _end_with(int(sys.argv[3]))
    gc.disable()  # until `memory.settle_in`
    from bot import app  # noqa: PLC0415 - this is what takes long
    from bot.console.common import run  # noqa: PLC0415
    from bot.core import log_output  # noqa: PLC0415
    from bot.web.handover import Channel  # noqa: PLC0415

    given = sys.stdin.buffer.read()
    if not given:
        return  # nobody waits for us any more
    settings = pickle.loads(given)  # noqa: S301 - by the process that started us
    log_output.configure(fmt=settings.log_format, level=settings.log_level)
    run(app.serve_as(name, settings, Channel(end)))


def _end_with(parent: int) -> None:
    """Have Linux end this process with the one that started it, even while this one is stopped or hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was over before
            sys.exit(1)


if __name__ == "__main__":
    main()

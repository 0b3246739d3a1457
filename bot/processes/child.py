"""One process of the family: how it is started, and how it gets its settings."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NAMES = ("worker", "pages")  # of the processes besides the one that listens
ROOT = Path(__file__).parent.parent.parent  # where this program was read from


@dataclass(frozen=True, kw_only=True)
class Child:
    """A process that waits for its settings on standard input, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    end: socket.socket

    def give(self, settings: bytes) -> None:
        """Write its settings; raises OSError where it has ended."""
        assert self.process.stdin is not None
        with self.process.stdin as written:
            written.write(settings)


def start(name: str) -> Child:
    """Start a process; raises OSError where the system has no room for one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT), *([found] if found else [])])
    try:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "bot.console.member", name, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            env=os.environ | {"PYTHONPATH": path},
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Child(process=process, end=ours)

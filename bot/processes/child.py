"""One of several processes: how it is started, and how it gets its settings.

The first ones are forked from a process that has read the program and not begun anything: what it has read they share.
Later there are threads, which a fork would not survive: the successor of a dead process is started as a program.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Become = Callable[[str, socket.socket, IO[bytes]], None]

NAMES = ("worker", "pages")  # of the processes besides the one that listens
ROOT = Path(__file__).parent.parent.parent  # where this program was read from
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # of sys/prctl.h
NICE = 5  # where processors are short, the process that listens comes first: GitHub waits 10 s and does not try again


@dataclass(frozen=True, kw_only=True)
class Child:
    """A process that waits for its settings, and our end of the socket to it."""

    process: subprocess.Popen[bytes] | Forked
    end: socket.socket

    def give(self, settings: bytes) -> None:
        """Write its settings; raises OSError where it has ended."""
        assert self.process.stdin is not None
        with self.process.stdin as written:
            written.write(settings)

    def close(self) -> None:
        """Close our ends: it ends, unless another process has them too."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.end.close()


class Forked:
    """A forked process, as `subprocess.Popen` shows one that it started."""

    def __init__(self, pid: int, stdin: IO[bytes]) -> None:
        self.pid, self.stdin = pid, stdin
        self._ended = False

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has been waited for: its number may be another's by now."""
        if not self._ended:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end; returns its exit code, or the number of the signal that ended it as a negative number."""
        _, status = os.waitpid(self.pid, 0)
        self._ended = True
        return os.waitstatus_to_exitcode(status)


def fork(names: Iterable[str], become: Become) -> dict[str, Child]:
    """Fork processes: each calls `become` with its end of the socket and what its settings are read from, and ends.

    To be called before there are threads. Raises OSError where the system cannot hold all of them.
    """
    gc.freeze()  # or a collection would write to every page that the processes share
    made: dict[str, Child] = {}
    try:
        for name in names:
            made[name] = _forked(name, become, made.values())
    except OSError:
        for one in made.values():
            one.close()  # which ends it
        raise
    return made


def _forked(name: str, become: Become, before: Iterable[Child]) -> Child:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    given, child = os.fdopen(read, "rb"), os.fdopen(write, "wb")
    parent = os.getpid()
    with theirs, given:
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            child.close()
            raise
        if pid == 0:
            Child(process=Forked(parent, child), end=ours).close()
            for one in before:  # their ends would never close else
                one.close()
            belong_to(parent, name)
            become(name, theirs, given)
            sys.exit(0)
    return Child(process=Forked(pid, child), end=ours)


def start(name: str) -> Child:
    """Start a process as a program of its own; raises OSError where the system cannot hold one more."""
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


def belong_to(parent: int, name: str) -> None:
    """Yield to the parent, end with it, even while stopped or hanging, and show a name: the last two on Linux only."""
    with contextlib.suppress(OSError):  # of a system that does not allow it
        os.nice(NICE)
    if sys.platform == "linux":
        system = ctypes.CDLL(None)
        system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        system.prctl(PR_SET_NAME, f"ootbot-{name}".encode())
        if os.getppid() != parent:  # it was over before
            sys.exit(1)

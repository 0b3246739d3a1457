"""Processes of `ootbot` that have read the program already: they are forked, which spares each a second of imports.

Run as a program this is the server that forks: it listens on the socket named by its argument. Each connection asks for
one process, and is told its process id and, in the end, its exit code. Nobody's process outlives who asked for it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 1 << 20  # bytes of a request


class Output(asyncio.StreamReaderProtocol):
    """What a process writes; closed at its end."""

    def eof_received(self):
        super().eof_received()
        return False


class Forked:
    """A process of `ootbot`, as `asyncio.subprocess` would show it."""

    def __init__(self, asked, pid, stdout, stderr):
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode = None
        self._ending = asyncio.create_task(self._end(asked))

    async def _end(self, asked):
        reader, writer = await asyncio.open_unix_connection(sock=asked)
        self.returncode = int(await reader.readline())
        writer.close()
        return self.returncode

    async def wait(self):
        return await asyncio.shield(self._ending)

    async def communicate(self):
        out = await self.stdout.read()
        err = await self.stderr.read() if self.stderr else None
        await self.wait()
        return out, err

    def send_signal(self, number):
        os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


async def ootbot(*arguments, cwd, env, apart=False):
    """Start `ootbot <arguments>`; stderr goes where stdout does unless it is to be read `apart`."""
    asked = socket.socket(socket.AF_UNIX)
    asked.connect(_server())
    stdout, write_out = await _pipe()
    stderr, write_err = await _pipe() if apart else (None, os.dup(write_out))
    os.umask(umask := os.umask(0))
    request = {"arguments": arguments, "cwd": str(cwd), "env": env, "umask": umask}
    socket.send_fds(asked, [json.dumps(request).encode() + b"\n"], [write_out, write_err])
    os.close(write_out)
    os.close(write_err)
    pid = int(asked.makefile("rb", 0).readline())
    asked.setblocking(False)
    return Forked(asked, pid, stdout, stderr)


def ended(*arguments, cwd, env):
    """Run `ootbot <arguments>` to its end, outside any loop; returns exit code, stdout and stderr."""

    async def run():
        process = await ootbot(*arguments, cwd=cwd, env=env, apart=True)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode, out.decode(), err.decode()

    return asyncio.run(run())


async def _pipe():
    """Return what reads from a new pipe, and the descriptor that writes to it."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        functools.partial(Output, reader), os.fdopen(read, "rb", 0)
    )
    return reader, write


@functools.cache
def _server():
    """Start the server that forks, once per test process; returns the path of its socket."""
    folder = tempfile.mkdtemp()
    path = f"{folder}/socket"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, __file__, path], env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_stop, server, Path(folder))
    server.stdout.readline()
    return path


def _stop(server, folder):
    server.kill()
    server.communicate()
    for left in (*folder.iterdir(), folder):
        left.rmdir() if left.is_dir() else left.unlink()


def serve(path):
    """Fork for everybody who connects, until standard input ends: the process that started this one is gone."""
    from bot.console import common  # noqa: F401 - these are what takes so long
    from bot.evidence.collect import parser_pool

    parser_pool.NICE = 0  # as in tests/conftest.py

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(100)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _keep(asked)
        asked.close()


def _keep(asked):
    """Start the process that is asked for, and wait for its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, outputs, _, _ = socket.recv_fds(asked, LONGEST, 2)
    while not request.endswith(b"\n"):
        request += asked.recv(LONGEST)
    pid = os.fork()
    if pid == 0:
        asked.close()
        _become(outputs, **json.loads(request))
    for output in outputs:
        os.close(output)
    threading.Thread(target=_outlived, args=(asked, pid), daemon=True).start()
    asked.sendall(b"%d\n" % pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        asked.sendall(b"%d\n" % code)
    os._exit(0)


def _outlived(asked, pid):
    """Kill the process once nobody waits for it any more: a test process that hangs is killed itself."""
    while asked.recv(1):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _become(outputs, arguments, cwd, env, umask):
    """Do what `ootbot <arguments>` does, in this process."""
    from bot import cli

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for output, number in zip(outputs, (1, 2), strict=True):
        os.dup2(output, number)
        os.close(output)
    os.chdir(cwd)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    code = 1
    try:
        cli.main(arguments, prog_name="ootbot")
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001 - printed, as Python does
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    serve(sys.argv[1])

"""The parser child: a process without environment, database or network use that parses one file after the other."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import resource
import struct
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bot.evidence.collect.parse.contract import NotRead, ParserInput, Refused, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH = struct.Struct(">I")
REQUEST = msgspec.msgpack.Decoder(Request)
MEMORY = 1024 * 1024 * 1024  # bytes of address space
CPU = 120  # seconds for one file
FILES = 200  # then a new child takes over
DESCRIPTORS_MOST = 2**20
MIB = 1024 * 1024
TOO_MUCH_MEMORY = f"reading it takes more than {MEMORY // MIB:,} MiB of memory"
NO_FAULT_OF_FILE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})  # the machine's errors


def main(nice: int) -> None:
    """Serve requests until standard input ends, with at least this niceness."""
    os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], DESCRIPTORS_MOST))  # none is ours
    with contextlib.suppress(OSError):  # of a system that does not allow it
        os.nice(max(nice - os.nice(0), 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a parser prints is no reply
    for served in range(1, FILES + 1):
        request = _next(requests)
        if request is None:
            return
        reply = serve(request)
        reply.ends |= served == FILES
        _write(replies, reply)
        if reply.ends:
            return


def serve(request: Request) -> Reply:
    """Parse one file and write the answer; an error of the file is in the reply."""
    _limit(request)
    try:
        parser = _load(request.parser)
        given = ParserInput(
            path=Path(request.path), blob=Path(request.blob), members=request.members, options=request.options
        )
        return _parse(parser, given, Path(request.answer))
    except MemoryError:
        return Reply(state="broken", reason=TOO_MUCH_MEMORY, ends=True)
    except RecursionError:
        return Reply(state="broken", reason="it is nested too deeply", ends=True)
    except OSError as error:
        return _failed(error, request.most_written)


def _parse(parser: Callable[[ParserInput], Any], given: ParserInput, answer: Path) -> Reply:
    """Write the parser's answer, even one that comes with an error."""
    try:
        answer.write_bytes(msgspec.msgpack.encode(parser(given)))
    except NotRead as error:
        if error.answer is not None:
            answer.write_bytes(msgspec.msgpack.encode(error.answer))
        state = "refused" if isinstance(error, Refused) else "broken"
        return Reply(state=state, reason=str(error), answered=error.answer is not None)
    return Reply(state="parsed", answered=True)


def _failed(error: OSError, most_written: int) -> Reply:
    """Return the reply for something that the system refused."""
    if error.errno == errno.ENOMEM:
        return Reply(state="broken", reason=TOO_MUCH_MEMORY, ends=True)
    words = error.strerror or str(error)
    if error.errno in NO_FAULT_OF_FILE:
        return Reply(state="unable", reason=f"it could not be read: {words}", ends=True)
    if error.errno == errno.EFBIG:
        limit = f"{most_written // MIB} MiB" if most_written >= MIB else f"{most_written:,} bytes"
        words = f"what was read of it has over {limit}"
    return Reply(state="broken", reason=words, ends=True)


def _limit(request: Request) -> None:
    """Limit processor time and written files for the next request."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + CPU, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (request.most_written, hard))


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _next(stream: IO[bytes]) -> Request | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return REQUEST.decode(stream.read(LENGTH.unpack(head)[0]))


def _write(stream: IO[bytes], reply: Reply) -> None:
    encoded = msgspec.msgpack.encode(reply)
    stream.write(LENGTH.pack(len(encoded)) + encoded)
    stream.flush()

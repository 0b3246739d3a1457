"""ClickHouse on loopback: its HTTP interface, as far as clients use it, in front of chdb, the engine as a library.

`python -m tests.sinks.clickhouse_gateway FOLDER` prints its port. What stands in the file `fault` of the folder decides
how it fails: a status and the words of an error, or `cut`: the connection breaks after what was asked for was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import lz4.frame
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = re.compile(r"Code: (\d+)")
FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)


class Gateway:
    """Answers requests one at a time, as one engine does."""

    def __init__(self, folder: Path) -> None:
        from chdb.session import Session

        self.fault = folder / "fault"
        self.session = Session(str(folder / "data"))
        self.lock = asyncio.Lock()

    async def handle(self, request: web.Request) -> web.Response:
        sql, data, params = await _read(request)
        fault = self.fault.read_text() if self.fault.exists() else ""
        if fault and fault != "cut":
            status, _, words = fault.partition(" ")
            return _failed(int(status), words)
        async with self.lock:
            try:
                database = request.query.get("database", "default")
                answer = await asyncio.to_thread(self._run, database, sql, data, params)
            except Exception as error:  # noqa: BLE001 - chdb raises what it likes
                return _failed(400, str(error))
        if fault == "cut" and sql.lstrip().upper().startswith("INSERT"):
            assert request.transport
            request.transport.close()
        return web.Response(body=answer, headers={"X-ClickHouse-Summary": "{}"})

    def _run(self, database: str, sql: str, data: bytes, params: dict[str, str]) -> bytes:
        self.session.query(f"USE `{database}`")
        if not data:
            found = FORMAT.search(sql)
            return self.session.query(sql, found[1] if found else "TabSeparated", params=params).bytes()
        with tempfile.NamedTemporaryFile(suffix=".native") as file:
            file.write(data)
            file.flush()
            insert, kind = FORMAT.sub("", sql), FORMAT.search(sql)
            self.session.query(f"{insert} FROM INFILE '{file.name}' COMPRESSION 'none' FORMAT {kind[1]}")
        return b""


async def _read(request: web.Request) -> tuple[str, bytes, dict[str, str]]:
    """Return the statement, what it inserts, and its parameters."""
    given = dict(request.query)
    if request.content_type == "multipart/form-data":
        given |= {name: str(value) for name, value in (await request.post()).items()}
        body = b""
    else:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "lz4":
            body = b"".join(_frames(body))
    sql = given.get("query", "")
    if not sql and body.startswith(b"INSERT") and b"FORMAT Native\n" in body:
        head, _, body = body.partition(b"\n")
        sql = head.decode()
    elif not sql:
        sql, body = body.decode(), b""
    params = {name[6:]: value for name, value in given.items() if name.startswith("param_")}
    return sql, body, params


def _frames(body: bytes) -> Iterator[bytes]:
    while body:
        frame = lz4.frame.LZ4FrameDecompressor()
        yield frame.decompress(body)
        body = frame.unused_data or b""


def _failed(status: int, words: str) -> web.Response:
    code = CODE.search(words)
    headers = {"X-ClickHouse-Exception-Code": code[1]} if code else {}
    return web.Response(status=status, text=words, headers=headers)


async def _serve(folder: Path) -> None:
    gateway = Gateway(folder)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", gateway.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 - the parent reads it
    await asyncio.Event().wait()


@contextlib.contextmanager
def serving(folder: Path, *before: str):
    """Run it in a process of its own, with words such as `nice` before its command; yields its port."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [*before, sys.executable, "-m", "tests.sinks.clickhouse_gateway", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))

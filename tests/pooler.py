"""PgBouncer in transaction mode before a test's PostgreSQL, where it is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from tests.process import free_port

PROGRAM = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


@contextlib.contextmanager
def pooler(database_url):
    """The same database through a pooler with two connections, which takes another for each transaction."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _running(sa.make_url(database_url), Path(folder)) as address,
    ):
        yield address


@contextlib.contextmanager
def _running(url, folder):
    port = free_port()
    (folder / "users.txt").write_text(f'"{url.username}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
{url.database} = host={url.query["host"]} dbname={url.database} user={url.username}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
auth_file = {folder / "users.txt"}
pool_mode = transaction
default_pool_size = 2
server_round_robin = 1
logfile = {folder / "pgbouncer.log"}
"""
    )
    as_user = {}
    if os.geteuid() == 0:  # it refuses to run as root
        server = Path(url.query["host"]).stat()  # which only the server's user may enter
        for path in (folder, *folder.iterdir()):
            os.chown(path, server.st_uid, server.st_gid)
        as_user = {"user": server.st_uid, "group": server.st_gid, "extra_groups": []}
    process = subprocess.Popen([PROGRAM, str(folder / "pgbouncer.ini")], stderr=subprocess.PIPE, **as_user)
    try:
        wait_for_port(port, process)
        name = url.username or "postgres"
        yield f"postgresql://{name}@127.0.0.1:{port}/{url.database}"
    finally:
        process.terminate()
        process.communicate()


def wait_for_port(port, process):
    """Return once something listens there."""
    for _ in range(200):
        assert process.poll() is None, process.stderr.read()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError("the pooler does not listen")

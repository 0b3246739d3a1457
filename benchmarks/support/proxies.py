"""Proxies before `ootbot serve`, as docs/install-proxy.md sets them up; addresses, TLS and folders are changed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "install-proxy.md"
DOCUMENTED = "127.0.0.1:8080"  # where the page says that the bot listens
STARTS_WITHIN = 10.0  # seconds
NGINX = """
worker_processes 1; daemon off; user {user}; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {documented}
}}
"""


def installed() -> list[str]:
    """Return the names of the proxies that this machine has."""
    return [name for name in ("nginx", "caddy", "haproxy") if shutil.which(name)]


@contextlib.contextmanager
def in_front(name: str, bot: int) -> Iterator[int]:
    """Run a proxy in front of a bot, both on ports of 127.0.0.1; yields the proxy's."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        words = configure(name, Path(folder), bot=bot, port=port)
        environment = os.environ | {"HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder}
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
        try:
            _wait_until_it_listens(process, port, log)
            yield port
        finally:
            process.terminate()
            process.wait(10)


def configure(name: str, folder: Path, *, bot: int, port: int) -> list[str]:
    """Write a proxy's configuration into a folder; returns the command that starts it."""
    text = documented(name).replace(DOCUMENTED, f"127.0.0.1:{bot}")
    if name == "nginx":
        text = re.sub(r"ssl_\w+ .*;", "", text).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
        user = "root" if os.geteuid() == 0 else "nobody"  # the latter is ignored
        text = NGINX.format(user=user, folder=folder, documented=text)
    elif name == "haproxy":
        text = re.sub(r"bind :443 ssl crt \S+", f"bind 127.0.0.1:{port}", text)
    else:
        text = "{\n    admin off\n}\n" + text.replace("ootbot.example.org", f"http://:{port}", 1)
    file = folder / "configuration"
    file.write_text(text)
    return {
        "nginx": ["nginx", "-c", str(file), "-e", str(folder / "error.log")],
        "haproxy": ["haproxy", "-db", "-f", str(file)],
        "caddy": ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"],
    }[name]


def documented(name: str) -> str:
    """Return the configuration that the page shows for a proxy."""
    (text,) = re.findall(rf"^```{name}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return text


def _wait_until_it_listens(process: subprocess.Popen, port: int, log: Path) -> None:
    end = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args[0]} did not start:\n{log.read_text()}")

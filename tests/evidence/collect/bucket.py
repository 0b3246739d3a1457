"""A bucket of S3 on loopback, served by moto as a process of its own."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import urllib.request

NAME = "collected"


@contextlib.contextmanager
def serving():
    """Serve S3 with one empty bucket; yields the variables under which the server is found."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = next(
                filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr))
            )
            # it logs every request: once nobody reads that any more, it would wait for ever
            threading.Thread(target=process.stderr.read, daemon=True).start()
            request = urllib.request.Request(f"{found[0]}/{NAME}", method="PUT")
            urllib.request.urlopen(request, timeout=30).close()
            yield {
                "AWS_ENDPOINT_URL": found[0],
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "a-key",
                "AWS_SECRET_ACCESS_KEY": "a secret",
                "AWS_REGION": "us-east-1",
            }
        finally:
            process.kill()

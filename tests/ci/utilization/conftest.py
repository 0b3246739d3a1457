"""What `ootbot utilization read` says of a log."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bot.console.utilization import utilization


@pytest.fixture
def read():
    """Read a log as JSON; the answer's key `exit` is the exit code."""

    def run(log, *options):
        content = log if isinstance(log, bytes) else log.encode()
        done = CliRunner().invoke(utilization, ["read", "-", "--json", *options], input=content)
        assert not done.exception or isinstance(done.exception, SystemExit), done.exception
        return json.loads(done.stdout) | {"exit": done.exit_code}

    return run

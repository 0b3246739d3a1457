"""What does a traceback in the log show?"""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, structlog
from bot.core.log_output import configure
configure(fmt=sys.argv[1], level="info")
def fails(held):
    raise ValueError("no such thing")
try:
    fails("what only a variable holds")
except ValueError:
    structlog.get_logger().exception("failed")
"""


@pytest.mark.parametrize("fmt", ["console", "json"])
def test_it_shows_where_and_why_but_not_what_variables_hold(fmt):
    done = subprocess.run([sys.executable, "-c", PROGRAM, fmt], capture_output=True, text=True, check=True)
    assert "in fails" in done.stderr
    assert "ValueError: no such thing" in done.stderr
    assert "variable holds" not in done.stderr

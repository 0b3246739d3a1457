"""What do commands do where the bot has not run yet? Those that only look make nothing; the others make the database."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.process import ROOT, options_for


@pytest.fixture
def ootbot(tmp_path, app_key):
    """Run a command with settings whose database is not there."""
    options = options_for(tmp_path, private_key=app_key) | {"DATA_DIR": str(tmp_path / "nowhere")}
    environ = os.environ | {f"OOTBOT_{name}": value for name, value in options.items()}

    def run(*words):
        command = [sys.executable, "-m", "bot.cli", *words]
        done = subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("command", ["allowlist show", "keys list", "tasks list"])
def test_what_only_looks_makes_no_database(ootbot, tmp_path, command):
    code, out, err = ootbot(*command.split())
    assert (code, out) == (1, "")
    assert f"there is no database at {tmp_path}/nowhere/ootbot.db" in err
    assert not (tmp_path / "nowhere").exists()


def test_a_key_may_be_made_before_the_bot_runs(ootbot):
    assert ootbot("keys", "add", "org/repo")[0] == 0
    assert "org/repo" in ootbot("keys", "list")[1]

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bot.cli import main
from tests.evidence.logs.jobs import Logs


@pytest.fixture
def ootbot():
    """Run a command in this process; returns exit code, output and errors."""

    def run(*arguments):
        done = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    return run


@pytest.fixture
def explain(ootbot, tmp_path):
    """What `ootbot logs explain --json` says of a log, with the rules given, else with those that come with it."""

    def run(log, rules=None):
        path = tmp_path / "job.log"
        path.write_bytes(log if isinstance(log, bytes) else log.encode())
        options = []
        for number, text in enumerate([rules] if isinstance(rules, str) else rules or ()):
            (tmp_path / f"{number}.toml").write_text(text)
            options += ["--rules", tmp_path / f"{number}.toml"]
        code, out, err = ootbot("logs", "explain", path, *options, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


@pytest.fixture
def bot(collecting_bot):
    return collecting_bot


@pytest.fixture
def logs(bot, github):
    return Logs(bot, github)

"""`ootbot demo`: the scenario from start to clean end, unmet expectations, interruption."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys

import pytest

from bot.demo import environment, main, participants
from bot.demo.environment import ExpectationError
from bot.demo.scenario import Scenario, findings

SECONDS = 180
DEMO = (sys.executable, "-m", "bot.cli", "demo")


@pytest.fixture
def variables(tmp_path):
    """Environment variables: options that must not reach the demo's bot, and a folder for temporary files."""
    return os.environ | {"TMPDIR": str(tmp_path), "OOTBOT_PORT": "1", "OOTBOT_APP_ID": "none"}


def run(*options, env):
    return subprocess.run(
        [*DEMO, *options], env=env, check=False, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.nightly  # .ci/run plays it before the tests
def test_the_scenario_runs_from_the_first_webhook_to_a_clean_end(variables, tmp_path):
    done = run("--once", env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("starting ")
    assert lines[1].startswith("HUD ")
    assert "http://127.0.0.1:" in lines[1]
    assert "FAILED" not in done.stdout
    assert any(line.strip().startswith("sign in with ") for line in lines)
    shown = [" ".join(line.split()) for line in lines]
    assert "oot / gate success 1 blocking backend passed" in shown
    assert "oot / gate failure tpu failed" in shown
    assert "ok #1 has exactly one comment, and its author is the App" in shown
    assert shown[-1] == "ok the bot stops cleanly"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_the_scenario_runs_with_the_preset_for_todays_clients(variables):
    done = run("--once", "--preset", "crcr", env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(line.startswith("crcr/org/tpu-backend/CI/test failure failed in ") for line in shown)
    assert "ok an L3 failure is shown as failure" in shown


@pytest.mark.nightly
def test_copies_are_compared_and_a_second_database_is_rebuilt_from_them(variables, tmp_path):
    done = run("--once", "--sink", str(tmp_path / "copies"), env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert shown[-5:] == [
        "ok all copies are sent",
        "ok the copies in archive are what is stored",
        "ok the copies in copies are what is stored",
        "ok the bot stops cleanly",
        "ok a second database, rebuilt from the archive, holds the same records",
    ]


def test_ctrl_c_stops_the_demo_without_errors(variables, tmp_path):
    with subprocess.Popen(
        DEMO,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        while not demo.stdout.readline().startswith("HUD "):
            assert demo.poll() is None
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: the bot gets the signal, too
        output, errors = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    assert "FAILED" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_ends_the_demo_with_the_reason(variables):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("--port", port, env=variables)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert done.stdout == ""


def test_the_usual_port_is_taken_where_it_is_free_and_another_one_where_not(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main.choose_port(port) == 0
        assert capsys.readouterr().out == f"port {port} is taken: a free one is used instead\n"
    assert main.choose_port(port) == port


@pytest.mark.nightly
async def test_unmet_expectations_are_found():
    async with environment.running() as env:
        env.backends[participants.TPU].silent = True
        scenario = Scenario(env)
        await env.ready()
        await scenario.open_pull_request()
        scenario.environment = dataclasses.replace(env, timeout=0.5)
        with pytest.raises(ExpectationError, match="not within") as unmet:
            await scenario.blocking_failure()
        other = await env.github.open_pull(participants.UPSTREAM)
        for app in (None, env.github.state.actions_app):  # a person's comment does not count
            comment = await env.github.comment(scenario.pull, "I have something to say.", by="alice")
            comment.app = app
        found = await findings(env, [scenario.pull, other], [1])
    assert unmet.value.expectation == "the L4 backend's check fails with the two failed tests in its title"
    assert scenario.fulfilled == [
        "the pull request is dispatched to every listed backend",
        "the L2 backend reports its success",
    ]
    problems = {finding.expectation: finding.problem for finding in found}
    assert problems["every webhook was answered 202"] == ""
    assert problems["#1 has exactly one comment, and its author is the App"].startswith(
        '1 comments, ["alice by App('
    )
    assert problems["#2 has exactly one comment, and its author is the App"].startswith("0 comments")
    assert problems["the old commit keeps its verdict"] == "oot / gate, oot / tpu"

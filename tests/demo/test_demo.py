"""Does `ootbot demo` tell its story, notice when it goes another way, and leave nothing behind?"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys

import pytest

from bot.demo import cast, checks, loopback
from bot.demo.acts import Story
from bot.demo.loopback import NotAsToldError

SECONDS = 90
DEMO = (sys.executable, "-m", "bot.cli", "demo")


@pytest.fixture
def surroundings(tmp_path):
    """An environment with options that must not reach the demo's bot, and a folder for temporary files."""
    return os.environ | {"TMPDIR": str(tmp_path), "OOTBOT_PORT": "1", "OOTBOT_APP_ID": "none"}


def run(*options, env):
    return subprocess.run(
        [*DEMO, *options], env=env, check=False, capture_output=True, text=True, timeout=SECONDS
    )


def test_the_story_is_told_from_the_first_webhook_to_a_clean_end(surroundings, tmp_path):
    done = run("--once", env=surroundings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("HUD ")
    assert "http://127.0.0.1:" in lines[0]
    assert "NOT AS TOLD" not in done.stdout
    shown = [" ".join(line.split()) for line in lines]
    assert "oot / gate success 1 blocking backend passed" in shown
    assert "oot / gate failure tpu failed" in shown
    assert "ok #1 has exactly one comment, and its author is the App" in shown
    assert shown[-1] == "ok the bot stops cleanly"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_endless_demo_quietly(surroundings, tmp_path):
    with subprocess.Popen(
        DEMO,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout.readline().startswith("HUD ")
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: the bot is told as well
        told, complaints = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, told + complaints
    assert complaints == ""
    assert "NOT AS TOLD" not in told
    assert list(tmp_path.iterdir()) == []


def test_a_bot_that_cannot_start_ends_the_demo_and_says_why(surroundings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("--port", port, env=surroundings)
    assert done.returncode == 1
    assert done.stdout.startswith("NOT AS TOLD: the bot did not start")
    assert "address already in use" in done.stdout.lower()
    assert done.stderr == ""


async def test_what_is_not_as_told_is_noticed():
    async with loopback.running(port=0, start_timeout="1h") as on:
        on.backends[cast.TPU].silent = True
        story = Story(on)
        await on.ready()
        await story.opened()
        story.on = dataclasses.replace(on, patience=0.5)
        with pytest.raises(NotAsToldError, match="not within") as untold:
            await story.blocked()
        other = await on.github.open_pull(cast.UPSTREAM)
        await on.github.comment(story.pull, "I say something, too.", by="alice")
        findings = await checks.findings(on, [story.pull, other])
    assert untold.value.sentence == "the L4 backend's check fails with the two failed tests in its title"
    assert story.told == [
        "every listed backend is told of the pull request",
        "the L2 backend reports its success",
    ]
    against = {finding.sentence: finding.against for finding in findings}
    assert against["every webhook was answered 202"] == ""
    assert against["#1 has exactly one comment, and its author is the App"].startswith("1 comments, ['alice")
    assert against["#2 has exactly one comment, and its author is the App"].startswith("0 comments")
    assert against["the old commit keeps its verdict"] == "oot / gate, oot / tpu"

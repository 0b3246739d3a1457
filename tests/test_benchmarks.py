"""Do the benchmarks still measure what they say? Short rounds, whose figures mean nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECONDS = 300  # one that takes longer hangs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("callback", "--rounds 1 --seconds 0.3", marks=pytest.mark.nightly),
        pytest.param("hud", "--rows 100 --cells 2000 --seconds 0.5 --views 1", marks=pytest.mark.nightly),
        ("logs", "--rounds 1 --megabytes 1 --large 10 --compared 0.05 --searched 1"),
        pytest.param(
            "tests", "--rounds 1 --cases 2000 --files 4 --run-cases 3000", marks=pytest.mark.nightly
        ),
        ("monitor", "--seconds 2 --processes 5"),
        pytest.param("utilization", "--rounds 1 --views 1", marks=pytest.mark.nightly),
        pytest.param(
            "collect", "--rounds 1 --seconds 0.5 --jobs 4 --megabytes 0.1", marks=pytest.mark.nightly
        ),
        ("tasks", "--rounds 1 --events 5"),
        pytest.param(
            "providers", "--rounds 1 --events 90 --seconds 0.5 --settled 0", marks=pytest.mark.nightly
        ),
        pytest.param(
            "ingest", "--only half_load --rounds 1 --seconds 0.3 --settled 0", marks=pytest.mark.nightly
        ),
        pytest.param(
            "ingest",
            "--rounds 1 --seconds 1 --deliveries 500 --backlog 300 --view-rows 500 --rows 1000 --settled 0",
            marks=pytest.mark.nightly,
        ),
        pytest.param("sinks", "--rounds 1 --backlog 600 --objects 900", marks=pytest.mark.nightly),
        pytest.param("publish", "--minutes 2 --pushes 1", marks=pytest.mark.nightly),
        pytest.param("scale", "--rounds 1 --deliveries 20 --pushes 1", marks=pytest.mark.nightly),
    ],
)
async def test_a_benchmark_measures_and_nothing_in_it_is_refused(name, options):
    code, out, err = await run(name, options)
    assert code == 0, err[-2000:]
    measured = json.loads(out)
    assert measured["name"] == name
    refused = {key: count for key, count in measured["ours"].items() if "answers_other_than" in key}
    assert {key: count for key, count in refused.items() if count and not median_is_zero(count)} == {}
    assert any(measured["ours"].values())


@pytest.mark.parametrize("name", ["publish", pytest.param("scale", marks=pytest.mark.nightly)])
async def test_a_benchmark_with_a_story_of_the_tests_finds_them(name):
    code, out, err = await run(name, "--help")
    assert (code, f"dev.py bench {name}" in out) == (0, True), err[-2000:]


async def test_all_of_them_come_in_one_document_which_names_what_failed():
    code, out, err = await run("all", "--only monitor,tasks --minutes 0.05")
    document = json.loads(out)
    assert (code, document["name"], document["reach"]) == (1, "all", []), err[-2000:]
    assert document["failed"].keys() == {"monitor", "tasks"}
    assert document["failed"]["monitor"] == "did not end within 1 s"


def median_is_zero(figure):
    return isinstance(figure, dict) and figure["most"] == 0


async def run(name, options):
    command = [sys.executable, "-m", f"benchmarks.{name}", *options.split(), "--json"]
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    try:
        out, err = await asyncio.wait_for(running.communicate(), SECONDS)
    finally:
        if running.returncode is None:
            running.kill()
    return running.returncode, out.decode(), err.decode()

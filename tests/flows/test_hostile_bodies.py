"""Does anything GitHub could sign break the bot? Thousands of spoilt bodies, then a proper one."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.harness import L4, UPSTREAM
from tests.mutations import spoilt
from tests.process import ROOT

CORPUS = sorted((ROOT.parent / "shared" / "corpus" / "webhooks").glob("*.json"))
FEW, MANY = 200, 1_000  # bodies for each database; many with --nightly
AT_ONCE = 25
NAMES_A_FIELD = re.compile(
    r"Unreadable: ([a-z_]+(\.[a-z_]+)* is (missing|not)|the body is nested too deeply)"
    r"|OtherRepository: "
)
FAULT = re.compile(r"\w+(Error|Exception): ")  # what nobody expected, as the worker notes it
ENDS = {"handled", "ignored", "parked"}


@pytest.fixture
async def shapes(bot, github):
    """(event, payload) of everything the simulated GitHub tells, and of the recorded webhooks where they are."""
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await github.label(pull, "bug")
    comment = await github.comment(pull, "a word", by="octocat")
    await github.edit_comment(comment, "another word")
    await github.push_commit(pull)
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await github.close(pull)
    await bot.settle()
    recorded = [(file.name.partition(".")[0], json.loads(file.read_bytes())) for file in CORPUS]
    told = [(one.event, one.payload) for one in github.deliveries]
    for event, payload in list(told):
        if event == "issue_comment":
            told.append(("issues", {name: payload[name] for name in payload if name != "comment"}))
            told.append(("repository", {"action": "renamed", "repository": payload["repository"]}))
    return recorded + told


@pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
async def test_nothing_github_could_sign_breaks_the_bot(bot, github, shapes, request, number):
    seed = f"{request.node.name} {len(shapes)}"
    bodies = list(spoilt(shapes, seed=seed, number=number))
    answers = {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def send(number, event, raw):
        async with gate:
            answers[f"spoilt-{number}"] = await bot.send(event, None, guid=f"spoilt-{number}", body=raw)

    await asyncio.gather(*(send(number, event, raw) for number, (_, event, raw) in enumerate(bodies)))
    told = {f"spoilt-{number}": what for number, (what, _, _) in enumerate(bodies)}
    refused = {guid: answer for guid, (status, answer) in answers.items() if status != 202}
    assert {told[guid]: answer for guid, answer in refused.items() if answer["error"] != "invalid_json"} == {}
    await bot.settle(horizon=3600)
    rows = {row["guid"]: row for row in await bot.rows("delivery") if row["guid"] in told}
    assert rows.keys() == told.keys() - refused.keys()
    assert {told[guid]: row["state"] for guid, row in rows.items() if row["state"] not in ENDS} == {}
    parked = {guid: row["error"] for guid, row in rows.items() if row["state"] == "parked"}
    assert {told[guid]: why for guid, why in parked.items() if not NAMES_A_FIELD.match(why)} == {}
    assert len(parked) > number / 50
    assert len(rows) - len(parked) > number / 4
    faults = {
        task["cause"]: task["error"] for task in await bot.rows("task") if FAULT.match(task["error"] or "")
    }
    assert {told.get(guid, guid): why for guid, why in faults.items()} == {}
    fresh = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    assert bot.checks(UPSTREAM, fresh.head_sha)["oot / gate"][0] == "in_progress"

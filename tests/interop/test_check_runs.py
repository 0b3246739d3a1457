"""Check runs as today's merge guard and on-call bot read them: one per job, named after repository, workflow and job."""

from __future__ import annotations

import pytest

from tests.harness import L2, L3, L4, UPSTREAM
from tests.interop import client
from tests.interop.client import Client
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

LABEL = "ciflow/crcr/npu"
BUILD, TEST = f"crcr/{L4}/CI/build", f"crcr/{L4}/CI/test"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    return made


def names(bot, pull):
    return sorted(bot.checks(UPSTREAM, pull.head_sha))


def objections(bot, pull):
    return client.objections(bot.github, UPSTREAM, pull.head_sha, {L4})


async def test_before_the_first_report_there_is_only_the_gate(bot, pull):
    assert names(bot, pull) == ["oot / gate"]


async def test_each_job_has_a_check_run_under_its_name_and_run(bot, pull):
    step = client.of(bot, bot.dispatch(L4), run_id="900")
    await step.started()
    await bot.settle()
    assert objections(bot, pull) == [BUILD]
    await step.ended()
    await Client(bot, L4, step.client_payload, job="test").ended("failure")
    await Client(bot, L2, bot.dispatch(L2).client_payload).ended("failure")
    await bot.settle()
    jobs = client.seen(bot.github, UPSTREAM, pull.head_sha)
    assert {name: (job.conclusion, job.external_id) for name, job in jobs.items()} == {
        BUILD: ("success", f"900:{pull.number}"),
        TEST: ("failure", f"900:{pull.number}"),
    }
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_a_failure_at_l4_stops_the_merge_guard(bot, pull, preset, settings):
    step = client.of(bot, bot.dispatch(L4))
    assert (await bot.report(bot.dispatch(L4), conclusion="failure"))[0] == 200
    await bot.settle()
    assert objections(bot, pull) == ([BUILD] if preset else [])  # without, the guard finds nothing to stop it
    assert client.paged(bot.github, UPSTREAM, pull.head_sha, {L4: ["dave"]}) == (["dave"] if preset else [])
    assert step.repo == L4


async def test_a_job_that_does_not_say_how_it_ended_stops_it_too(bot, pull):
    await client.of(bot, bot.dispatch(L4)).ended("")
    await bot.settle()
    assert objections(bot, pull) == [BUILD]


async def test_an_l3_backend_is_shown_with_its_label_and_fails_as_it_says(bot, github, pull):
    await client.of(bot, bot.dispatch(L3)).ended("failure")
    running = client.of(bot, bot.dispatch(L3), job="test")
    await running.started()
    await bot.settle()
    assert names(bot, pull) == ["oot / gate"]
    await github.label(pull, LABEL)
    await bot.settle()
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: seen[1] for name, seen in checks.items() if name != "oot / gate"} == {
        f"crcr/{L3}/CI/build": "failure",
        f"crcr/{L3}/CI/test": None,
    }
    await github.unlabel(pull, LABEL)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)[f"crcr/{L3}/CI/test"][:2] == ("completed", "neutral")
    assert objections(bot, pull) == []


async def test_another_attempt_is_a_new_check_run_of_the_same_name(bot, github, pull):
    payload = bot.dispatch(L4).client_payload
    await Client(bot, L4, payload).ended("failure")
    await bot.settle()
    await Client(bot, L4, payload, run_attempt="2").started()
    await bot.settle()
    runs = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == BUILD]
    assert [(run.status, run.conclusion, run.external_id) for run in runs] == [
        ("completed", "failure", f"900:{pull.number}"),
        ("in_progress", None, f"900:{pull.number}"),
    ]


async def test_names_that_are_alike_are_numbered_and_long_ones_end_with_a_hash(bot, pull):
    payload = bot.dispatch(L4).client_payload
    await Client(bot, L4, payload, workflow="a/b", job="c").ended()
    bot.clock.advance(1)
    await Client(bot, L4, payload, workflow="a", job="b/c").ended("failure")
    await Client(bot, L4, payload, workflow="w" * 300, job="d").ended()
    await bot.settle()
    first, second, long, _ = names(bot, pull)
    assert (first, second) == (f"crcr/{L4}/a/b/c", f"crcr/{L4}/a/b/c (2)")
    assert (len(long), long.count("/")) == (255, 4)
    assert objections(bot, pull) == [second]


async def test_of_many_jobs_every_failure_is_shown(bot, pull):
    payload = bot.dispatch(L4).client_payload
    for number in range(52):
        await Client(bot, L4, payload, job=f"job {number:02}").ended()
    bot.clock.advance(1)
    await Client(bot, L4, payload, job="the last").ended("failure")
    await bot.settle(horizon=600)
    jobs = client.seen(bot.github, UPSTREAM, pull.head_sha)
    assert len(jobs) == 51
    assert objections(bot, pull) == [f"crcr/{L4}/CI/the last"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_check_runs_of_one_run_are_made_once_when_the_answer_is_lost(bot, github, pull, when):
    """Name and external_id of two attempts are the same, and the external_id of two jobs."""
    payload = bot.dispatch(L4).client_payload
    await Client(bot, L4, payload).ended("failure")
    await bot.settle()
    github.faults.add(method="POST", path="check-runs$", when=when, drop=True, times=2)
    await Client(bot, L4, payload, run_attempt="2").ended("failure")
    await Client(bot, L4, payload, job="test").ended("failure")
    await bot.settle(horizon=300)
    runs = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name != "oot / gate"]
    assert sorted((run.name, run.conclusion) for run in runs) == [
        (BUILD, "failure"),
        (BUILD, "failure"),
        (TEST, "failure"),
    ]


async def test_the_rerun_button_of_a_job_runs_its_run_again(bot, github, pull):
    run = await github.start_run(L4)
    await client.of(bot, bot.dispatch(L4), run_id=str(run.id)).ended("failure")
    await github.finish_job(await github.start_job(run, "build"), "failure")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    (check,) = [one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == BUILD]
    await github.rerequest(check.id)
    await bot.settle(horizon=20)
    assert run.run_attempt == 2

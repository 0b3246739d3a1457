"""Reports of tests that Buildkite's jobs leave: fetched by an API token, and used as those of GitHub's jobs are."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from bot.providers.feature import ProviderSettings, read_providers
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, push
from tests.providers import buildkite_server
from tests.providers.buildkite_server import API_TOKEN
from tests.providers.conftest import ENVIRON
from tests.providers.sending import PIPELINE, build, deliver_buildkite, job_event

pytestmark = pytest.mark.logic
FIRST = "018f0a6e-0000-4000-8000-00000000000a"
FAILING = '<testcase classname="test_npu" name="test_add"><failure message="1 == 2">boom</failure></testcase>'
PASSING = '<testcase classname="test_npu" name="test_sub"/>'


def report(*cases):
    return f'<testsuite name="npu" tests="{len(cases)}">{"".join(cases)}</testsuite>'.encode()


@pytest.fixture
async def buildkite():
    async with buildkite_server.serving() as made:
        yield made


@pytest.fixture
def settings(settings, buildkite):
    entry = {
        "kind": "buildkite",
        "pipelines": {PIPELINE: UPSTREAM},
        "junit": ["results/*.xml", "reports.zip"],
    }
    entry |= {"api_token_env": "API_TOKEN", "api_url": buildkite.url}
    chosen = ProviderSettings(
        providers=read_providers(json.dumps([entry]), ENVIRON | {"API_TOKEN": API_TOKEN})
    )
    more = {ProviderSettings: chosen, CollectSettings: CollectSettings()}
    return replace(settings, of_features={**settings.of_features, **more})


async def ends(bot, state="failed", **more):
    await deliver_buildkite(bot, job_event(state, job=FIRST, **more))
    await bot.wait(120)


async def fetches(bot):
    return sorted(
        (row["state"], row["error"]) for row in await bot.rows("ci_fetch") if row["kind"] == "artifact"
    )


async def test_tests_that_failed_are_told_on_the_commit_and_in_the_grid(bot, buildkite):
    await deliver(bot, push(bot, "A"))
    buildkite.leaves(FIRST, "results/one.xml", report(FAILING, PASSING))
    buildkite.leaves(FIRST, "results/half.xml", b"", state="new")
    buildkite.leaves(FIRST, "wheel.whl", b"no report")
    await ends(bot)
    assert await fetches(bot) == [("parsed", None)]
    assert set(buildkite.tokens_at_store) == {None}
    (row,) = await bot.rows("test_job")
    told = (row["tests"], row["failed"], row["head_sha"], row["trusted"], row["backend"], row["workflow"])
    assert told == (2, 1, COMMITS["A"], True, None, "buildkite / fastcheck")
    (cell,) = await bot.rows("ci_cell")
    assert cell["tests_failed"] == 1
    _, shown = await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}/tests")
    assert "test_add" in shown
    page = f"/{UPSTREAM}/other-job/{-cell['job_id']}"
    _, shown = await bot.get(page)
    assert "test_add" in shown
    assert f'href="/{UPSTREAM}/commit/{COMMITS["A"]}/tests"' in shown
    _, shown = await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}")
    assert "test_add" in shown
    for path in sorted(set(re.findall(rf'href="(/{UPSTREAM}/test/[^"]+)"', shown))):
        assert (await bot.get(path))[0] == 200


@pytest.mark.nightly
async def test_an_archive_of_reports_and_several_of_them_are_one_job(bot, buildkite):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.xml", report(PASSING))
    buildkite.leaves(FIRST, "reports.zip", packed.getvalue())
    buildkite.leaves(FIRST, "results/one.xml", report(FAILING))
    await ends(bot, "passed", of=build(pull=78))
    (row,) = await bot.rows("test_job")
    assert (row["tests"], row["failed"], row["pr_number"], row["trusted"]) == (2, 1, 78, False)


async def test_odd_lists_and_files_harm_nothing(bot, buildkite):
    buildkite.leaves(FIRST, "results/broken.xml", b"<testsuite><testcase")
    buildkite.leaves(FIRST, "results/gone.xml", None)
    buildkite.leaves(FIRST, "results/odd.xml", b"", identifier="../../x")
    buildkite.artifacts[FIRST] += [None, 7, {}, {"id": 1, "path": [], "state": "finished"}]
    await ends(bot)
    states = [state for state, _ in await fetches(bot)]
    assert len(states) == 2
    assert "absent" in states
    assert not any(".." in path for path in buildkite.asked)


@pytest.mark.nightly
async def test_one_report_that_does_not_come_keeps_no_other_from_coming(bot, buildkite):
    for number in range(3):
        buildkite.leaves(
            FIRST, f"results/{number}.xml", report(PASSING.replace("test_sub", f"test_{number}"))
        )
    buildkite.answers = [(500, {}), None, (500, {})]  # the list is asked for again, then the first file
    await ends(bot, "passed")
    await bot.wait(600)
    assert await fetches(bot) == [("parsed", None)] * 3
    (row,) = await bot.rows("test_job")
    assert row["tests"] == 3


async def test_jobs_that_never_ran_have_no_reports(bot, buildkite):
    await ends(bot, "expired")
    assert buildkite.asked == []

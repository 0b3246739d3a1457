"""Logs of Buildkite's jobs that failed: fetched by an API token, and used as those of GitHub's jobs are."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from bot.providers.doctor import check_providers
from bot.providers.feature import ProviderSettings, read_providers
from tests.command import ootbot
from tests.harness import START, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, push
from tests.pages.page_checks import failures
from tests.providers import buildkite_server
from tests.providers.buildkite_server import API_TOKEN
from tests.providers.conftest import COMMANDS, ENVIRON
from tests.providers.sending import PIPELINE, build, deliver_buildkite, job_event

pytestmark = pytest.mark.logic
LONG = pytest.mark.nightly
FIRST, SECOND = "018f0a6e-0000-4000-8000-00000000000a", "018f0a6e-0000-4000-8000-00000000000b"
SECRET = "ghp_" + "a1B2" * 9
LINES = (
    "~~~ Running commands",
    "$ pytest -x",
    f"token {SECRET}",
    "FAILED tests/test_npu.py::test_add - assert 1 == 2",
)
LOG = "".join(f"\x1b_bk;t={START + at * 1_000}\x07{line}\r\n" for at, line in enumerate(LINES)).encode()


@pytest.fixture
async def buildkite():
    async with buildkite_server.serving() as made:
        yield made


@pytest.fixture
def token():
    """What the variable with the API token holds."""
    return API_TOKEN


@pytest.fixture
def entries(buildkite):
    """The option, with an API token."""
    entry = {"kind": "buildkite", "pipelines": {PIPELINE: UPSTREAM}, "api_token_env": "API_TOKEN"}
    return json.dumps([entry | {"api_url": buildkite.url}])


@pytest.fixture
def settings(settings, entries, token):
    chosen = ProviderSettings(providers=read_providers(entries, ENVIRON | {"API_TOKEN": token}))
    more = {ProviderSettings: chosen, CollectSettings: CollectSettings()}
    return replace(settings, of_features={**settings.of_features, **more})


async def fails(bot, buildkite, *, job=FIRST, log=LOG, **more):
    """A job fails and leaves a log."""
    if log is not None:
        buildkite.logs[job] = log
    await deliver_buildkite(bot, job_event("failed", job=job, **more))
    await bot.wait(10)


async def fetches(bot):
    return [(row["state"], row["error"]) for row in await bot.rows("ci_fetch") if row["kind"] == "log"]


async def test_a_failed_jobs_log_says_why_wherever_a_job_of_github_would(bot, buildkite):
    await deliver(bot, push(bot, "A"))
    await fails(bot, buildkite)
    assert buildkite.asked == [
        f"/v2/organizations/pytorch/pipelines/fastcheck/builds/77/jobs/{FIRST}/log.txt"
    ]
    assert await fetches(bot) == [("stored", None)]
    (cell,) = await bot.rows("ci_cell")
    assert (cell["failure_kind"], cell["line"]) == ("test", LINES[3])
    name = "buildkite / fastcheck / :npu: Test"
    page = f"/{UPSTREAM}/other-job/{-cell['job_id']}"

    _, shown = await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}")
    (row,) = failures(shown)
    assert row[0].startswith(f"{name} failed test: {LINES[3]} · line 4")
    assert f'href="{page}"' in shown
    _, shown = await bot.get(page)
    assert "Why it failed" in shown
    assert "on buildkite" in shown
    _, shown = await bot.get(f"{page}/log")
    assert '<tr id="L4" class="marked">' in shown
    assert "bk;t=" not in shown
    _, plain = await bot.get(f"{page}/log.txt")
    assert SECRET not in plain
    _, found = await bot.get(f"/api/ci/logs/{UPSTREAM}/commit/{COMMITS['A']}?q=assert 1")
    assert [(one["name"], one["job_id"]) for one in found["jobs"]] == [(":npu: Test", cell["job_id"])]
    _, found = await bot.get(f"/api/ci/logs/{UPSTREAM}?q=assert&branch=main")
    assert len(found["jobs"]) == 1
    _, shown = await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}/logs?q=assert")
    assert f'href="{page}/log?line=4#L4"' in shown
    (failure,) = (await bot.get("/api/ci/failures"))[1]["failures"]
    assert failure["jobs"] == 1


async def test_an_open_cell_of_the_grid_leads_to_the_log(bot, buildkite):
    await deliver(bot, push(bot, "A"))
    await fails(bot, buildkite)
    _, shown = await bot.get(f"/hud/{UPSTREAM}/main")
    (cell,) = set(re.findall(rf"cell={COMMITS['A'][:12]}\.\w+", shown))
    _, shown = await bot.get(f"/hud/{UPSTREAM}/main?{cell}")
    assert re.search(rf'href="/{UPSTREAM}/other-job/\d+/log">its log: 4 lines</a>', shown)


async def test_what_a_log_said_stays_whatever_comes_later(bot, buildkite):
    await deliver(bot, push(bot, "A"))
    await fails(bot, buildkite)
    await deliver_buildkite(bot, job_event("failed", job=FIRST, retried=True, retried_in_job_id=SECOND))
    await bot.wait(10)
    (cell,) = await bot.rows("ci_cell")
    assert cell["line"] == LINES[3]
    assert len(buildkite.asked) == 1
    await deliver_buildkite(bot, job_event("passed", job=SECOND, retries_count=1, at=20))
    _, shown = await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}")
    assert failures(shown) == []


@LONG
async def test_where_no_rule_says_why_the_exit_status_stays(bot, buildkite):
    await deliver(bot, push(bot, "A"))
    await fails(bot, buildkite, log=b"nothing to see\n")
    (cell,) = await bot.rows("ci_cell")
    assert (cell["line"], cell["signature"]) == ("exit status 1", None)
    assert [row["kind"] for row in await bot.rows("ci_verdict")] == ["none"]


async def test_logs_kept_elsewhere_are_fetched_there_without_the_token(bot, buildkite):
    buildkite.store = buildkite.url.replace("127.0.0.1", "localhost")
    buildkite.store_answers = [403]  # that is not the API's word on the token
    await fails(bot, buildkite)
    await fails(bot, buildkite, job=SECOND)
    await bot.wait(60)
    assert await fetches(bot) == [("stored", None)] * 2
    assert set(buildkite.tokens_at_store) == {None}


async def test_of_jobs_that_passed_never_ran_or_are_of_no_commit_no_log_is_fetched(bot, buildkite):
    await deliver_buildkite(
        bot,
        job_event("passed", job="a"),
        job_event("expired", job="b"),
        job_event("canceled", job="c"),
        job_event("failed", job="d", of=build("failed", sha="HEAD")),
        job_event("failed", job="e/../../f"),
    )
    await bot.wait(10)
    assert buildkite.asked == []


@pytest.mark.parametrize("status", [401, pytest.param(403, marks=LONG)])
async def test_a_token_that_is_refused_is_left_alone_for_an_hour(bot, buildkite, status):
    buildkite.answers = [(status, {})]
    await fails(bot, buildkite)
    ((state, reason),) = await fetches(bot)
    assert state == "forbidden"
    (number,) = {-row["job_id"] for row in await bot.rows("ci_fetch")}
    assert f"not available: {reason[:60]}" in (await bot.get(f"/{UPSTREAM}/other-job/{number}"))[1]
    assert reason.startswith(f"Buildkite answered {status} to the API token in API_TOKEN: it has to be valid")
    await fails(bot, buildkite, job=SECOND)
    assert len(buildkite.asked) == 1
    assert sorted(one for one, _ in await fetches(bot)) == ["forbidden", "wanted"]
    await bot.wait(3_700)
    assert await fetches(bot) == [("stored", None), ("stored", None)]


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"RateLimit-Reset": "42"}, 42), pytest.param({}, 60, marks=LONG)]
)
async def test_a_limit_is_waited_for_as_long_as_buildkite_asks(bot, buildkite, headers, seconds):
    buildkite.answers = [(429, headers)]
    await fails(bot, buildkite)
    await fails(bot, buildkite, job=SECOND)
    assert len(buildkite.asked) == 1
    await bot.wait(seconds - 22)
    assert len(buildkite.asked) == 1
    await bot.wait(60)
    assert await fetches(bot) == [("stored", None), ("stored", None)]


@LONG
async def test_a_log_that_is_not_there_yet_is_asked_for_again_then_counts_as_absent(bot, buildkite):
    await fails(bot, buildkite, log=None)
    await fails(bot, buildkite, job=SECOND, log=None)
    buildkite.logs[SECOND] = LOG
    await bot.wait(1_000)
    absent = "Buildkite has no log of it, or the API token may not see the pipeline"
    assert sorted(await fetches(bot), key=str) == [("absent", absent), ("stored", None)]


@LONG
async def test_servers_that_fail_are_asked_again(bot, buildkite):
    buildkite.answers = [(500, {}), (502, {}), (400, {})]
    await fails(bot, buildkite)
    await bot.wait(3_600)
    assert await fetches(bot) == [("stored", None)]


async def test_a_log_of_a_private_repository_is_shown_to_nobody_else(bot, buildkite):
    await deliver(bot, push(bot, "A"))
    await fails(bot, buildkite)
    (cell,) = await bot.rows("ci_cell")
    body = {"id": bot.github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    told = {"action": "privatized", "repository": body | {"updated_at": "2030-01-01T00:00:00Z"}}
    await deliver(bot, ("repository", told))
    page = f"/{UPSTREAM}/other-job/{-cell['job_id']}"
    admin = {"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    for path in (page, f"{page}/log", f"{page}/log.txt"):
        assert (await bot.get(path))[0] == 404
        assert (await bot.get(path, headers=admin))[0] == 200


async def test_a_number_of_no_job_has_no_page(bot):
    for number in ("1", "99999999999999999", "999999999999999999999"):
        for path in ("", "/log", "/log.txt"):
            assert (await bot.get(f"/{UPSTREAM}/other-job/{number}{path}"))[0] == 404


async def test_a_doctor_asks_what_the_token_may_do_and_the_guide_says_that_it_is_used(
    bot, buildkite, entries
):
    class Target:
        settings, store, http, clock = bot.context.settings, bot.store, bot.http, bot.clock

        async def has_database(self):
            return True

    async def said():
        return [one.detail for one in await check_providers(Target()) if "API token" in one.detail]

    assert await said() == ["the API token in API_TOKEN has read_build_logs"]
    buildkite.scopes = ("read_builds",)
    assert await said() == ["the API token in API_TOKEN lacks read_build_logs"]
    more = COMMANDS | {"OOTBOT_PROVIDERS": entries, "API_TOKEN": API_TOKEN}
    code, out, err = await ootbot(bot, "providers", more=more)
    assert code == 0, err
    assert "logs of failed jobs, by the API token in API_TOKEN with read_build_logs" in out
    assert API_TOKEN not in out + err


class TestWrongToken:
    @pytest.fixture
    def token(self):
        return "another-token"

    async def test_the_doctor_and_the_job_name_a_wrong_token(self, bot, buildkite):
        await fails(bot, buildkite)
        ((state, reason),) = await fetches(bot)
        assert (state, "Buildkite answered 401 to the API token in API_TOKEN" in reason) == (
            "forbidden",
            True,
        )


class TestWithoutLogs:
    @pytest.fixture
    def settings(self, settings):
        off = {CollectSettings: CollectSettings(ci_logs="off")}
        return replace(settings, of_features={**settings.of_features, **off})

    async def test_nothing_is_fetched_where_the_settings_want_no_logs(self, bot, buildkite):
        await fails(bot, buildkite)
        assert buildkite.asked == []

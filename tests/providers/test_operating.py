"""What the operator has of other CIs: replay, projects that are mapped to nothing, the guide, the doctor, metrics."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import aiohttp
import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from bot.ingest.tables import delivery
from tests.command import ootbot
from tests.harness import UPSTREAM
from tests.jobs.branch import deliver, push
from tests.ops.test_admin_pages import sign_in
from tests.providers.conftest import COMMANDS
from tests.providers.sending import (
    SLUG,
    agent_event,
    build_event,
    circleci,
    commit,
    deliver_buildkite,
    deliver_circleci,
    job_event,
    send_buildkite,
    send_circleci,
    status,
)
from tests.providers.test_stories import grid
from tests.serving import SQLITE

TABLES = ("provider_job", "provider_run", "provider_agent", "ci_cell")


async def everything(bot):
    return {name: sorted(map(repr, await bot.rows(name))) for name in TABLES}


async def test_a_replay_rebuilds_what_other_cis_said(bot):
    await deliver(bot, push(bot, "A"), status(bot, "jenkins", "failure"))
    await deliver_circleci(bot, circleci(), circleci("workflow-completed"))
    await deliver_buildkite(
        bot, job_event("running"), job_event("failed"), build_event(), agent_event("lost")
    )
    before = await everything(bot)
    assert all(before.values())
    async with bot.store.transaction() as tx:
        for name in TABLES:
            await tx.run(sa.delete(metadata.tables[name]))
    code, _, err = await ootbot(bot, "replay", "--all")  # it needs none of the settings of other CIs
    assert code == 0, err
    assert await everything(bot) == before


@pytest.mark.logic
async def test_a_project_that_was_renamed_is_seen_and_what_it_sent_is_taken_up_later(bot):
    await deliver(bot, push(bot, "A"))
    event = circleci(slug="gh/pytorch/renamed", status="failed")
    assert (await send_circleci(bot, event))[1]["ignored"] == "unknown project gh/pytorch/renamed"
    await bot.settle()
    assert await bot.rows("provider_job") == []
    text = (await bot.get("/metrics"))[1]
    assert float(re.search(r'ootbot_provider_unmapped_total\{provider="circleci"\} (\S+)', text)[1]) >= 1
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        page = await sign_in(bot, browser)
    assert "circleci:gh/pytorch/renamed" in page
    assert "1 in 7 days" in page

    code, out, err = await ootbot(bot, "providers", "--take-up", more=COMMANDS)
    assert code == 0, err
    assert "0 events of projects that are mapped by now" in out
    more = COMMANDS | {"OOTBOT_PROVIDERS": COMMANDS["OOTBOT_PROVIDERS"].replace(SLUG, "gh/pytorch/renamed")}
    code, out, err = await ootbot(bot, "providers", "--take-up", "--json", more=more)
    assert code == 0, err
    assert json.loads(out)["taken_up"] == 1
    await bot.settle()
    assert await grid(bot) == {"circleci / ci / test": "X"}


@SQLITE
async def test_the_guide_says_what_to_enter_and_shows_no_secret(bot):
    await deliver_buildkite(bot, *(job_event("passed", job=str(number)) for number in range(7)))
    code, out, err = await ootbot(bot, "providers", more=COMMANDS)
    assert code == 0, err
    for words in (
        "/api/circleci/webhooks",
        "/api/buildkite/webhooks",
        "the value of CIRCLECI_SECRET",
        "send it as X-Buildkite-Signature, not as X-Buildkite-Token",
        "job-completed and workflow-completed",
        "all of build.*, job.* and agent.*",
        f"gh/pytorch/vision -> {UPSTREAM}",
        "no other CI reaches these URLs: set PUBLIC_URL",
    ):
        assert words in out
    assert out.count("buildkite.job.finished") == 5
    for secret in COMMANDS["CIRCLECI_SECRET"], COMMANDS["BUILDKITE_TOKEN"]:
        assert secret not in out + err
    code, out, err = await ootbot(bot, "providers")
    assert "no other CI is in the settings; docs/providers.md" in out


@SQLITE
async def test_a_secret_that_is_missing_is_named_when_a_command_starts(bot):
    code, _, err = await ootbot(bot, "providers", more=COMMANDS | {"BUILDKITE_TOKEN": ""})
    assert code == 2
    assert "OOTBOT_PROVIDERS: entry 2 (buildkite): the environment variable BUILDKITE_TOKEN is missing" in err


@SQLITE
async def test_what_came_before_github_said_which_repository_it_is_waits_for_that(bot):
    async with bot.store.transaction() as tx:
        for name in ("pinned_repository", "repository_name"):
            await tx.run(sa.delete(metadata.tables[name]))
    assert (await send_circleci(bot, circleci()))[0] == 202
    await bot.settle()
    (row,) = [row for row in await bot.rows("delivery") if row["source"] == "circleci"]
    assert (row["state"], "is the App installed there?" in row["error"]) == ("parked", True)
    await deliver(bot, push(bot, "A"))  # names the repository
    await bot.wait(61)
    (row,) = [row for row in await bot.rows("delivery") if row["source"] == "circleci"]
    assert (row["state"], row["error"]) == ("handled", None)
    assert len(await bot.rows("provider_job")) == 1


@SQLITE
async def test_without_github_webhooks_say_which_repository_it_is(bot):
    await deliver(bot, push(bot, "A"))
    async with bot.store.transaction() as tx:  # as where deliveries are replayed into an empty database
        await tx.run(sa.delete(metadata.tables["pinned_repository"]))
    assert (await send_circleci(bot, circleci()))[0] == 202
    await bot.settle()
    assert len(await bot.rows("provider_job")) == 1


@SQLITE
async def test_records_are_read_page_by_page_and_one_by_one(bot):
    for number in range(3):
        await deliver_buildkite(bot, job_event("passed", job=f"job-{number}"))
        bot.clock.advance(1)
    await deliver(bot, status(bot, "jenkins/npu/build", "failure"))
    path = f"/api/records/provider_job/{UPSTREAM}"
    _, first = await bot.get(f"{path}?limit=3")
    assert [row["job_id"] for row in first["rows"]][1:] == ["job-2", "job-1"]
    _, rest = await bot.get(f"{path}?limit=3&before={first['next']}")
    assert ([row["job_id"] for row in rest["rows"]], rest["next"]) == (["job-0"], None)
    _, one = await bot.get(f"{path}/{commit('A')}/jenkins/npu/build")
    assert (one["provider"], one["reason"], one["trusted"]) == ("status", "2 failed", True)
    assert (await bot.get(f"{path}/none"))[1]["error"] == "not_found"
    assert (await bot.get("/api/records/provider_run/pytorch/pytorch"))[0] == 404
    assert (await bot.get(f"/api/records/workflow_job/{UPSTREAM}"))[1]["error"] == "not_found"  # as before


@SQLITE
async def test_jobs_of_a_private_repository_are_hidden(bot):
    await deliver_circleci(bot, circleci())
    body = {
        "id": bot.github.state.repo(UPSTREAM).id,
        "full_name": UPSTREAM,
        "private": True,
        "updated_at": "2030-01-01T00:00:00Z",
    }
    await deliver(bot, ("repository", {"action": "privatized", "repository": body}))
    assert (await bot.get(f"/api/records/provider_job/{UPSTREAM}"))[0] == 404
    token = {"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    assert (await bot.get(f"/api/records/provider_job/{UPSTREAM}", headers=token))[0] == 200


@SQLITE
async def test_what_is_past_its_retention_goes(bot):
    await deliver_circleci(bot, circleci(), circleci("workflow-completed"))
    await deliver_buildkite(bot, agent_event("connected"))
    bot.clock.advance(401 * 86_400)
    await bot.settle()
    await bot.wait(3_700)
    for name in TABLES:
        assert await bot.rows(name) == [], name


@SQLITE
async def test_a_doctor_names_a_ci_that_was_never_heard_of_and_one_that_fell_silent(bot):
    from bot.providers.doctor import check_providers

    class Target:
        settings, store, http, clock = bot.context.settings, bot.store, bot.http, bot.clock

        async def has_database(self):
            return True

    await send_circleci(bot, circleci(slug="gh/x/y"))
    await send_buildkite(bot, job_event("passed"))
    await bot.settle()
    bot.clock.advance(8 * 86_400)
    await deliver(bot, push(bot, "A"))
    await send_circleci(bot, circleci(slug="gh/x/z"))
    await send_circleci(bot, circleci(), secret="a guess of theirs")
    await bot.settle()
    found = [(one.status, one.detail) for one in await check_providers(Target())]
    assert ("warning", "no event of circleci has ever arrived") in found
    assert ("warning", "buildkite was last heard of 8 d ago, GitHub since") in found
    assert ("warning", "1 event of the circleci project gh/x/z, which is mapped to no repository") in found
    assert any("had a wrong signature since the bot started" in words for _, words in found)


class TestQuota:
    @pytest.fixture
    def settings(self, settings):
        return replace(settings, others_raw_mb=1)

    @SQLITE
    async def test_events_of_projects_that_are_nothing_to_us_are_kept_up_to_a_size(self, bot):
        noise = random.Random(1)
        for number in range(3):
            event = circleci(slug="gh/x/y", number=number) | {"more": noise.randbytes(500_000).hex()}
            assert (await send_circleci(bot, event))[0] == 202
        mine = circleci() | {"more": noise.randbytes(900_000).hex()}
        assert (await send_circleci(bot, mine))[0] == 202
        await bot.settle()
        await bot.wait(3_700)
        left = [row["repo"] for row in await bot.rows("delivery") if row["source"] == "circleci"]
        assert left.count(UPSTREAM) == 1
        assert 0 < left.count("circleci:gh/x/y") < 3


async def test_many_events_and_many_of_them_twice_are_all_handled(bot):
    events = [job_event("passed", job=f"job-{number}") for number in range(40)]
    for event in events + events[::2]:
        assert (await send_buildkite(bot, event))[0] == 202
    await bot.settle()
    assert len(await bot.rows("provider_job")) == 40
    async with bot.store.read() as tx:
        count = (
            await tx.run(
                sa.select(sa.func.count()).select_from(delivery).where(delivery.c.source == "buildkite")
            )
        ).scalar()
    assert count == 40

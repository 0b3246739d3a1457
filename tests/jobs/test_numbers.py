"""A branch over days: its metrics, the reliability of its jobs, its runners."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs import branch_numbers
from bot.jobs.settings import TrunkSettings
from bot.pages.jobs.run import BARS_SHOWN
from bot.web.charts import TimelineBar, timeline
from tests.harness import L3, START, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, iso, job, push, run
from tests.jobs.test_hud import example
from tests.pages.page_checks import add_job, check_escaped, page_text
from tests.serving import SQLITE

METRICS, RELIABILITY, QUEUE = (f"/api/ci/{name}/{UPSTREAM}" for name in ("metrics", "reliability", "queue"))
MINUTE = 60_000
COMMIT = f"/{UPSTREAM}/commit/{COMMITS['A']}"


async def a_day(bot):
    """The example of docs/ci.md with its fifth commit."""
    await deliver(bot, *example(bot), push(bot, "E", parent="D", at=40),
               job(bot, "linux / test (default, 1, 2, linux.4xlarge)", "E", "failure", number=61, at=40),
               job(bot, "linux / test (default, 2, 2, linux.4xlarge)", "E", number=62, at=40))  # fmt: skip
    await bot.wait(60)


@pytest.mark.logic
async def test_the_reliability_of_the_documents_example(bot):
    await a_day(bot)
    body = (await bot.get(RELIABILITY))[1]
    (one,) = body["jobs"]
    assert one["name"] == "pull / linux / test (default)"
    assert (one["runs"], one["passed"], one["broken"], one["flaky"], one["infra"]) == (5, 2, 3, 1, 0)
    page = (await bot.get(f"/{UPSTREAM}/reliability"))[1]
    check_escaped(page)
    assert "pull / linux / test (default)" in page


@SQLITE
async def test_a_job_whose_numbers_are_no_shard_has_its_hours(bot):
    await deliver(bot, push(bot, "A"), job(bot, "linux / test (default, 1, 1, linux.4xlarge)", "A"))
    await bot.wait(60)
    (one,) = (await bot.get(RELIABILITY))[1]["jobs"]
    assert one["name"] == "pull / linux / test (default, 1, 1)"
    assert one["job_seconds"] == 240


@pytest.mark.logic
async def test_metrics_of_a_day(bot):
    await a_day(bot)
    body = (await bot.get(f"{METRICS}?days=7"))[1]
    assert len(body["days"]) == 7
    whole = body["whole"]
    assert (whole["lines"], whole["red"], whole["green"], whole["red_share"]) == (5, 3, 2, 0.6)
    assert (whole["jobs"], whole["reruns"], whole["flaky"]) == (12, 1, 1)
    assert whole["red_p50"] == 300  # five minutes after the first job was created
    assert whole["cost"] is None
    assert whole["flaky_share"] == pytest.approx(1 / 11)
    (runner,) = body["runners"]
    assert (runner["label"], runner["job_seconds"], runner["cost"]) == (
        "linux.4xlarge",
        whole["job_seconds"],
        None,
    )
    assert body["days"][-1]["lines"] == 5
    text = await page_text(bot, f"/{UPSTREAM}/metrics?days=7")
    assert "Red commits 60 %" in text
    assert "Time to red 5 min median p75 5 min p90 5 min" in text
    assert "Passed on a second try 1 9.1 % of first attempts" in text
    assert "linux.4xlarge 0.7" in text
    assert "broken" in text


@pytest.mark.logic
async def test_changes_of_a_column_are_recorded_once(bot):
    await a_day(bot)
    await bot.send(*push(bot, "E", parent="D", at=40))
    await bot.wait(60)
    rows = await bot.rows("trunk_event")
    assert sorted(
        (row["state_before"], row["state_after"], row["first_bad"], row["last_good"]) for row in rows
    ) == [
        ("ok", "suspect", COMMITS["C"], COMMITS["B"]),
        ("suspect", "broken", COMMITS["C"], COMMITS["B"]),
    ]
    newest, older = (await bot.get(METRICS))[1]["changes"]
    assert (newest["after"], newest["first_bad"], newest["last_good"]) == (
        "broken",
        COMMITS["C"],
        COMMITS["B"],
    )
    assert (older["before"], older["after"]) == ("ok", "suspect")
    assert newest["at"] > older["at"]


@pytest.mark.logic
async def test_runners_show_what_waits_and_how_long_jobs_waited(bot):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"), job(bot, "lint", "A", "", status="queued"),
               job(bot, "docs", "A", "", status="in_progress"))  # fmt: skip
    await bot.wait(600)
    answer = (await bot.get(QUEUE))[1]
    (one,) = answer["runners"]
    assert one["label"] == "linux.4xlarge"
    assert one["queue_counts_week"] == [0] * answer["queue_bounds"].index(60) + [3] + [0] * 6
    assert 'aria-label="jobs by queue time: 3 up to 60 s"' in (await bot.get(f"/{UPSTREAM}/queue"))[1]
    assert (one["waiting"], one["busy"], one["jobs"]) == (1, 1, 3)
    assert one["oldest"] >= 600
    assert one["queue_p50"] == 60
    assert "linux.4xlarge 1 10 min" in await page_text(bot, f"/{UPSTREAM}/queue")


async def test_a_job_waits_while_its_runner_of_a_scale_set_is_prepared(bot):
    """GitHub tells no more steps until the job ends: ten minutes after its creation nobody believes the two any longer."""
    deliveries = []
    for runner, steps in (("npu-8-x7k2p-runner-9qv4d", 2), ("npu-8-x7k2p-runner-aaaaa", 3), ("machine-7", 1)):
        event, body = job(bot, f"on {runner}", "A", "")
        body["workflow_job"] |= {"runner_name": runner, "labels": ["npu-8"]}
        body["workflow_job"]["steps"] = [{"name": str(at), "number": at} for at in range(steps)]
        deliveries.append((event, body))
    await deliver(bot, push(bot, "A"), *deliveries)
    seen = []
    for minutes in (4, 3, 4):
        bot.clock.advance(minutes * 60)
        (one,) = (await bot.get(QUEUE))[1]["runners"]
        seen.append((one["waiting"], one["oldest"], one["busy"]))
    assert seen == [(0, None, 2), (1, 420, 2), (0, None, 3)]


@SQLITE
async def test_only_first_attempts_make_up_the_queue_time(bot):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"), job(bot, "build", "A", attempt=2, at=9))
    await bot.wait(60)
    (one,) = (await bot.get(QUEUE))[1]["runners"]
    assert (one["jobs"], sum(one["queue_counts_week"])) == (2, 1)


class TestRunnerNames:
    """Labels are counted under names that the operator gives them."""

    @pytest.fixture
    def settings(self, settings):
        """The settings of a bot that knows its runners."""
        chosen = TrunkSettings(ci_runners=((r"^npu-(\d+)", r"npu \1"), ("^gpu", "GPUs")))
        return replace(settings, of_features={**settings.of_features, TrunkSettings: chosen})

    @SQLITE
    async def test_the_first_pattern_that_any_label_matches_names_it(self, bot):
        labels = (["self-hosted", "linux", "npu-8.large"], ["gpu.a"], ["gpu.b", "x"], ["other", "gp"], [])
        await deliver(bot, push(bot, "A"))
        for each in labels:
            event, body = job(bot, f"job {len(each)} {each}", "A")
            body["workflow_job"]["labels"] = each
            await deliver(bot, (event, body))
        await bot.wait(60)
        found = {one["label"]: one["jobs"] for one in (await bot.get(QUEUE))[1]["runners"]}
        assert found == {"npu 8": 1, "GPUs": 2, "gp": 1, "unknown": 1}
        (line,) = await bot.rows("ci_line")
        assert set(line["seconds"]) == set(found)


@SQLITE
async def test_what_a_backend_reports_later_is_counted_too(bot):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"))
    await bot.wait(60)
    await add_job(bot, pr_number=None, event_type="push", head_sha=COMMITS["A"], downstream_repo=L3, job_name="build",
                  workflow_name="CI")  # fmt: skip
    await bot.send(*job(bot, "build", "A", attempt=2))
    await bot.wait(60)
    names = {one["name"] for one in (await bot.get(RELIABILITY))[1]["jobs"]}
    assert names == {"pull / build", "backends / npu / CI / build"}


@SQLITE
async def test_branches_that_nobody_watches_are_not_counted(bot):
    await deliver(bot, push(bot, "A", branch="feature/x"), job(bot, "build", "A"), run(bot, "A"))
    await bot.wait(60)
    assert await bot.rows("ci_day") == []
    assert await bot.rows("ci_line") == []


@SQLITE
@pytest.mark.parametrize("page", ["metrics", "reliability", "queue"])
async def test_pages_of_what_is_unknown_or_backends(bot, page):
    assert (await bot.get(f"/nobody/nothing/{page}"))[0] == 404
    assert (await bot.get(f"/api/ci/{page}/nobody/nothing"))[0] == 404
    text = (await bot.get(f"/oot/org/{page}"))[1]
    assert "unknown" in text.casefold() or "not known" in text.casefold()  # a backend of that name


def test_a_few_unlucky_runs_do_not_lead_the_list():
    assert branch_numbers.wilson_lower(2, 3) < branch_numbers.wilson_lower(60, 100)
    assert branch_numbers.wilson_lower(0, 100) == 0
    assert branch_numbers.wilson_lower(0, 0) == 0


def test_costs_follow_the_first_glob_that_fits():
    costs = (("npu.*", 4.0), ("*", 0.5))
    assert branch_numbers.cost_of([("npu.8", 3600), ("ubuntu-24.04", 7200)], costs) == 5.0
    assert branch_numbers.cost_of([("npu.8", 3600)], ()) is None


def bar(name, queued, started, ended):
    return TimelineBar(name=name, url="/", tone="good", queued_at=queued, started_at=started, ended_at=ended)


def test_bars_stand_in_the_order_of_their_starts_on_one_axis():
    found = timeline(
        [
            bar("test", 60_000, 90_000, 200_000),
            bar("build", 0, 10_000, 60_000),
            bar("late", 100_000, None, None),
        ],
        now=200_000,
    )
    assert (found.began_at, found.length) == (0, "3 min")
    assert [(one.name, one.words) for one in found.bars] == [
        ("build", "waited 10 s, took 50 s"), ("test", "waited 30 s, took 110 s"), ("late", "waiting for 100 s"),
    ]  # fmt: skip
    assert '<rect class="good" x="50" y="0" width="250"' in found.bars[0].drawing
    assert '<rect class="queue" x="500"' in found.bars[2].drawing


def test_clocks_that_contradict_one_another_draw_nothing_wrong():
    (one,) = timeline([bar("odd", 90_000, 60_000, 30_000)], now=200_000).bars
    assert one.words == "waited 0 s, took 0 s"
    assert "-" not in one.drawing.partition("<rect")[2].replace("aria-", "")
    assert timeline([bar("none", None, None, None)], now=1) is None


async def test_a_commit_shows_when_its_jobs_waited_and_ran(bot):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A", number=7),
               job(bot, "test (default, 1, 2)", "A", "failure", number=8))  # fmt: skip
    text = await page_text(bot, COMMIT)
    assert "When jobs waited and ran" in text
    assert "pull / build waited 60 s, took 4 min" in text
    assert "pull / test (default) 1/2 waited 60 s, took 4 min" in text
    assert f'href="/{UPSTREAM}/job/8"' in (await bot.get(COMMIT))[1]


@SQLITE
async def test_of_many_jobs_those_that_ended_last_are_shown(bot):
    await deliver(
        bot, push(bot, "A"), *(job(bot, f"job {at:02}", "A", at=at) for at in range(BARS_SHOWN + 5))
    )
    page = (await bot.get(COMMIT))[1]
    assert f"the {BARS_SHOWN} of {BARS_SHOWN + 5} that ended last" in page
    shown = page.partition('class="timeline"')[2]
    assert "job 04" not in shown
    assert shown.index("job 05") < shown.index(f"job {BARS_SHOWN + 4}")


@SQLITE
async def test_a_run_shows_the_steps_of_its_newest_attempt(bot):
    steps = [
        ("Set up <b>job</b>", "success", 60, 90),
        ("Test", "failure", 90, 300),
        ("No times", None, None, None),
    ]
    event, body = job(bot, "build", "A", "failure", number=9, attempt=2)
    body["workflow_job"]["steps"] = [
        {"name": name, "conclusion": conclusion, "number": at, "status": "completed",
         "started_at": start and iso(START + start * 1000), "completed_at": end and iso(START + end * 1000)}
        for at, (name, conclusion, start, end) in enumerate(steps)
    ]  # fmt: skip
    await deliver(
        bot, run(bot, "A"), run(bot, "A", attempt=2), job(bot, "build", "A", number=8), (event, body)
    )
    page = (await bot.get(f"/{UPSTREAM}/run/77"))[1]
    check_escaped(page)
    drawn = page.partition('class="timeline"')[2]
    assert drawn.count("<svg") == 1
    assert "<title>Set up &lt;b&gt;job&lt;/b&gt;: 30 s</title>" in drawn
    assert "<title>Test: failed after 4 min</title>" in drawn
    assert "No times" not in drawn

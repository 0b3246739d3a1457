"""When the jobs of a commit, a pull request's head and a run waited and ran, on their pages."""

from __future__ import annotations

from bot.pages.jobs.run import BARS_SHOWN
from bot.web.charts import TimelineBar, timeline
from tests.harness import START, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, iso, job, push, run
from tests.pages.page_checks import check_escaped, page_text
from tests.serving import SQLITE

MINUTE = 60_000
COMMIT = f"/{UPSTREAM}/commit/{COMMITS['A']}"


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

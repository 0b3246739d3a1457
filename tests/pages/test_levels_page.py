"""The levels page: readiness for promotion or demotion, and the time a backend has been at its level."""

import pytest

from tests.harness import ALLOWLIST, L2, L3, L4
from tests.pages.page_checks import add_job, page_text

pytestmark = pytest.mark.logic


DAY = 86_400


async def judged(bot, repo):
    body = (await bot.get("/api/oot/levels"))[1]
    return next(one for one in body["backends"] if one["repo"] == repo)


async def days_of_results(bot, repo, count, *, conclusion="success", level=2, **changes):
    for number in range(count):
        for job in ("build", "test"):
            await add_job(bot, downstream_repo=repo, downstream_repo_level=level, job_name=job, conclusion=conclusion,
                      run_id=f"{bot.clock.now()}{number}", **changes)  # fmt: skip
        bot.clock.advance(DAY)


async def test_a_month_of_good_results_makes_a_backend_ready(bot):
    await days_of_results(bot, L2, 31)
    one = await judged(bot, L2)
    assert {measure["name"]: measure["word"] for measure in one["measures"]} == {
        "time at L2": "meets", "days with data": "meets", "pass rate": "meets", "timeout rate": "meets",
        "runs over 3 h": "meets", "median queue": "meets",
    }  # fmt: skip
    assert (one["advice"], one["promotion"], one["demotion"]) == ("ready for L3", "meets", "meets")
    assert "ready for L3" in await page_text(bot, "/oot/levels")


async def test_what_misses_is_named(bot):
    await days_of_results(bot, L3, 8, conclusion="timed_out", level=3)
    one = await judged(bot, L3)
    assert one["advice"] == "demotion to L2 is due: pass rate, timeout rate"
    await days_of_results(bot, L4, 8, level=4, execution_time=4 * 3600.0)
    assert (await judged(bot, L4))["advice"] == "demotion to L3 is due: median end to end"
    text = await page_text(bot, "/oot/levels?q=tpu")
    assert "Promotion: 30 days Demotion: 7 days" in text
    assert "✕ demotion to L3 is due: median end to end" in text
    assert "✓ 100 % meets ✓ 0 % meets ✕ 4 h misses" in text


async def test_a_bad_first_day_is_no_reason_to_go_down(bot):
    await days_of_results(bot, L3, 6, conclusion="timed_out", level=3)
    one = await judged(bot, L3)
    assert one["demotion"] == "unknown"
    assert one["advice"].startswith("not ready for L4: ")
    await days_of_results(bot, L3, 1, conclusion="timed_out", level=3)
    assert (await judged(bot, L3))["advice"] == "demotion to L2 is due: pass rate, timeout rate"


async def test_the_last_days_are_those_of_the_summary(bot):
    for conclusion in ("failure", *["success"] * 5):
        await days_of_results(bot, L4, 1, conclusion=conclusion, level=4)
    for back in range(9):
        measured = (await judged(bot, L4))["demotion_measures"][0]["value"]
        _, body = await bot.get("/api/oot/summary?days=7")
        shown = next(one for one in body["backends"] if one["repo"] == L4)
        assert measured == shown["pass_rate"], back
        bot.clock.advance(DAY // 3)


async def test_nothing_known_is_unknown_not_good(bot):
    one = await judged(bot, L2)
    words = {measure["name"]: measure["word"] for measure in one["measures"]}
    assert words["pass rate"] == words["timeout rate"] == words["median queue"] == "unknown"
    assert one["promotion"] == "misses"
    assert one["demotion"] == "unknown"


async def test_time_at_a_level_begins_when_the_allowlist_changes_it(bot, tmp_path):
    began = (await judged(bot, L2))["since"]
    await bot.wait(3 * DAY)
    (tmp_path / "allowlist.yml").write_text(ALLOWLIST.replace(f'{{{L2}: "alice, bob"}}', "org/other"))
    await bot.wait(600)
    (tmp_path / "allowlist.yml").write_text(ALLOWLIST)
    await bot.wait(600)
    assert (await judged(bot, L2))["since"] > began
    assert (await judged(bot, L4))["since"] == began

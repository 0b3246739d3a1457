"""Lists of disabled tests and jobs: from the issue's delivery, or by searching, to the file that CI fetches."""

from __future__ import annotations

import itertools

import pytest
import sqlalchemy as sa

from bot.evidence.disabled.exports import prune_disabled
from bot.ingest.tables import records
from tests.evidence.disabled.issues import about, deliver, half_hour, issue, lists, may_write, platforms, url
from tests.harness import L1, L2, L3, UPSTREAM

X, Y = "test_x (__main__.TestX)", "test_y (__main__.TestY)"
JOB = "pull / linux / test (default)"
DAY = 86_400  # seconds
FIRST, SECOND = "test_a (__main__.A)", "test_b (__main__.B)"


async def test_issues_become_lists(bot):
    may_write(bot, "erin")
    await deliver(
        bot,
        issue(bot, 1, f"DISABLED {X}", "Platforms: win, linux"),
        issue(bot, 2, f"DISABLED {JOB}"),
        issue(bot, 3, "UNSTABLE pull / linux"),
        issue(bot, 4, "DISABLED MULTIPLE two", f"disable the following tests:\n```\n{Y}: npu\n```"),
        issue(bot, 5, "An issue about something else"),
        issue(bot, 6, "disabled test_z (__main__.TestZ)"),
    )
    assert await lists(bot) == [
        {X: ["1", url(1), ["linux", "win"]], Y: ["4", url(4), ["npu"]]},
        {JOB: ["erin", "2", url(2), "pull", "linux", "test (default)"]},
        {"pull / linux": ["erin", "3", url(3), "pull", "linux", ""]},
    ]


@pytest.mark.logic
async def test_issues_by_people_without_write_access_change_nothing(bot):
    may_write(bot, "erin")
    await deliver(
        bot,
        issue(bot, 1, f"DISABLED {X}", by="mallory", author_association="OWNER"),
        issue(bot, 2, f"DISABLED {JOB}", by="mallory"),
        issue(bot, 3, f"DISABLED {Y}", by="erin"),
        issue(bot, 4, "DISABLED test_z (Z)", user=None),
    )
    assert [sorted(one) for one in await lists(bot)] == [[Y], [], []]
    _, page = await bot.get(f"/{UPSTREAM}/disabled")
    assert page.count(f"mallory has no write access to {UPSTREAM}") == 2
    assert "GitHub does not name its author" in page
    _, answer = await bot.get(f"/api/ci/disabled/{UPSTREAM}")
    assert {one["number"]: one["effect"] for one in answer["issues"]} == {
        1: "none", 2: "none", 3: "disabled", 4: "none"
    }  # fmt: skip


@pytest.mark.logic
async def test_an_app_named_in_the_settings_may_disable(bot_with):
    async with bot_with(ci_disable_authors=("Helper[bot]",)) as bot:
        await deliver(bot, issue(bot, 1, f"DISABLED {X}", by="helper[bot]"))
        assert sorted(await platforms(bot)) == [X]


@pytest.mark.logic
async def test_order_and_repetition_of_deliveries_do_not_matter(bot):
    may_write(bot, "erin")
    story = [
        issue(bot, 1, f"DISABLED {X}", "Platforms: linux"),
        issue(bot, 1, f"DISABLED {X}", "Platforms: linux, win", action="edited", at=1),
        issue(bot, 1, f"DISABLED {X}", "Platforms: linux, win", state="closed", at=2),
        issue(bot, 1, f"DISABLED {X}", "Platforms: linux, win", action="reopened", at=3),
    ]
    for number, order in enumerate(itertools.permutations(story), 10):
        deliveries = [
            (
                event,
                body | {"issue": body["issue"] | {"number": number, "id": number, "html_url": url(number)}},
            )
            for event, body in (*order, order[0])
        ]
        for _, body in deliveries:
            body["issue"]["title"] = f"DISABLED test_{number} (C)"
        await deliver(bot, *deliveries)
    assert await platforms(bot) == {f"test_{number} (C)": ["linux", "win"] for number in range(10, 34)}


async def test_closing_renaming_and_deleting_enables_again(bot):
    may_write(bot, "erin")
    names = [f"test_{number} (C)" for number in range(4)]
    await deliver(bot, *(issue(bot, number, f"DISABLED {name}") for number, name in enumerate(names)))
    assert sorted(await platforms(bot)) == names
    await deliver(
        bot,
        issue(bot, 0, f"DISABLED {names[0]}", state="closed", at=1),
        issue(bot, 1, "Fixed?", action="edited", at=1),
        issue(bot, 2, f"DISABLED {names[2]}", action="deleted", at=1),
    )
    assert await platforms(bot) == {names[3]: []}


@pytest.mark.logic
async def test_two_issues_for_one_test_are_united_and_no_platform_means_all(bot):
    may_write(bot, "erin")
    await deliver(
        bot,
        issue(bot, 7, f"DISABLED {X}", "platforms: win"),
        issue(bot, 5, f"DISABLED {X}", "platforms: linux, win"),
        issue(bot, 6, f"DISABLED {Y}", "platforms: win"),
        issue(bot, 8, f"DISABLED {Y}"),
    )
    found = (await lists(bot))[0]
    assert found == {X: ["5", url(5), ["linux", "win"]], Y: ["6", url(6), []]}


@pytest.mark.logic
async def test_a_backend_gets_what_is_disabled_on_its_device_and_by_its_own_issues(bot):
    may_write(bot, "erin")
    may_write(bot, "carol", repo=L3)
    await deliver(
        bot,
        issue(bot, 1, "DISABLED test_all (C)"),
        issue(bot, 2, "DISABLED test_npu (C)", "platforms: NPU, linux"),
        issue(bot, 3, "DISABLED test_linux (C)", "platforms: linux"),
        issue(bot, 4, f"DISABLED {JOB}"),
        issue(bot, 1, "DISABLED test_own (C)", repo=L3, by="carol"),
        issue(bot, 2, "DISABLED test_npu (C)", "platforms: win", repo=L3, by="carol"),
        issue(bot, 3, "DISABLED test_no (C)", repo=L3, by="erin"),
        issue(bot, 4, "DISABLED own / job", repo=L3, by="carol"),
    )
    disabled, jobs, unstable = await lists(bot, query=f"?backend={L3.upper()}")
    assert {name: one[2] for name, one in disabled.items()} == {
        "test_all (C)": [], "test_npu (C)": ["linux", "npu", "win"], "test_own (C)": []
    }  # fmt: skip
    assert disabled["test_own (C)"][1] == url(1, L3)
    assert [sorted(jobs), unstable] == [["own / job"], {}]
    assert sorted(await platforms(bot, repo=L3)) == ["test_npu (C)", "test_own (C)"]
    assert sorted(await platforms(bot, f"?backend={L2}")) == [
        "test_all (C)"
    ]  # nothing heard of it, no device
    for unknown in ("org/unlisted", L1, "npu"):
        status, answer = await bot.get(f"/api/ci/{UPSTREAM}/disabled-tests-condensed.json?backend={unknown}")
        assert (status, answer["error"]) == (404, "unknown_backend")


@pytest.mark.logic
async def test_answers_can_be_kept_for_five_minutes(bot):
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 1, f"DISABLED {X}"))
    address = f"{bot.url}/api/ci/{UPSTREAM}/disabled-tests-condensed.json"
    async with bot.http.get(address) as answer:
        tag, control = answer.headers["ETag"], answer.headers["Cache-Control"]
        assert (answer.content_type, control) == ("application/json", "public, max-age=300")
    async with bot.http.get(address, headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304
    await deliver(bot, issue(bot, 2, f"DISABLED {Y}"))
    async with bot.http.get(address, headers={"If-None-Match": tag}) as answer:
        assert (answer.status, answer.headers["ETag"] == tag) == (200, False)


@pytest.mark.logic
async def test_the_last_lists_stay_while_github_cannot_be_asked(bot):
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 1, f"DISABLED {X}"))
    bot.clock.advance(600)  # what is known of people's rights is forgotten
    bot.github.faults.add(path="/collaborators/", status=502, times=None)
    await deliver(bot, issue(bot, 2, f"DISABLED {Y}"))
    assert sorted(await platforms(bot)) == [X]
    bot.github.faults.clear()
    await bot.settle(horizon=900)
    assert sorted(await platforms(bot)) == [X, Y]


@pytest.mark.logic
async def test_who_loses_write_access_disables_nothing_from_then_on(bot):
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 1, f"DISABLED {X}"))
    bot.github.state.repo(UPSTREAM).permissions["erin"] = "read"
    await half_hour(bot)
    assert await platforms(bot) == {}


@pytest.mark.logic
async def test_a_repository_without_such_issues_has_empty_lists(bot):
    assert (await bot.get(f"/api/ci/{UPSTREAM}/disabled-jobs.json"))[0] == 404  # no delivery has named it yet
    await deliver(bot, issue(bot, 1, "Something else"))
    status, answer = await bot.get(f"/api/ci/{UPSTREAM}/disabled-jobs.json")
    assert (status, answer["error"]) == (404, "no_list")
    await half_hour(bot)
    assert await lists(bot) == [{}, {}, {}]


async def test_issues_stored_by_an_older_version_appear_by_themselves(bot):
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 1, "Fixed?"))
    async with bot.store.transaction() as tx:  # as if an older version, which had no lists, had stored it
        await tx.run(sa.update(records["issue"]).values(title=f"DISABLED {X}"))
    await half_hour(bot)
    assert sorted(await platforms(bot)) == [X]


@pytest.mark.logic
async def test_nothing_of_private_repositories_is_shown(bot):
    may_write(bot, "carol", repo=L3)
    await deliver(bot, issue(bot, 1, f"DISABLED {X}", repo=L3, by="carol"), issue(bot, 1, "Something"))
    await half_hour(bot)
    assert sorted(await platforms(bot, f"?backend={L3}")) == [X]
    hidden = about(bot, L3, private=True, updated_at="2030-01-01T00:00:00Z")
    await deliver(bot, ("repository", {"action": "privatized", "repository": hidden}))
    for address in (
        f"/api/ci/{L3}/disabled-tests-condensed.json",
        f"/api/ci/{UPSTREAM}/disabled-tests-condensed.json?backend={L3}",
        f"/api/ci/disabled/{L3}",
        f"/{L3}/disabled",
    ):
        status, answer = await bot.get(address)
        assert (status, "test_x" in str(answer)) == (404, False), address
    token = {"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    async with bot.http.get(f"{bot.url}/api/ci/{L3}/disabled-jobs.json", headers=token) as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "private, no-store")


@pytest.mark.logic
async def test_text_from_outside_is_inert_on_the_page(bot):
    may_write(bot, "erin")
    await deliver(
        bot,
        issue(bot, 1, "DISABLED <script>alert(1)</script> / a\u202eb", html_url="javascript:alert(1)"),
        issue(bot, 2, f"DISABLED {X}", "platforms: <b>, linux"),
    )
    _, page = await bot.get(f"/{UPSTREAM}/disabled")
    assert not any(text in page for text in ("<script>alert", "javascript:", "\u202e", "<b>"))
    assert "unknown platform: &lt;b&gt;" in page


@pytest.mark.logic
async def test_lists_are_read_through_an_index(bot):
    async with bot.store.read() as tx:
        if not tx.sqlite:
            pytest.skip("PostgreSQL prefers to scan tables that hold nothing")
        query = "SELECT number FROM issue WHERE state = 'open' AND substr(issue.title, 1, 9) IN ('DISABLED ', 'UNSTABLE ')"
        plan = await tx.rows(sa.text(f"EXPLAIN QUERY PLAN {query} AND repository_id = 1 ORDER BY number"))
    assert "ix_issue_disabling" in str(plan)


@pytest.mark.logic
async def test_each_day_has_its_last_list(bot_with):
    async with bot_with() as bot:
        may_write(bot, "erin")
        await deliver(bot, issue(bot, 7, f"DISABLED {FIRST}", "platforms: linux"))
        await deliver(bot, issue(bot, 8, f"DISABLED {SECOND}"))
        (today,) = await bot.rows("ci_disabled_day")
        assert today["tests"] == [[FIRST, 7, ["linux"]], [SECOND, 8, []]]
        made_at = today["made_at"]
        await deliver(bot, issue(bot, 8, f"DISABLED {SECOND}", "the same, in other words", at=1))
        assert (await bot.rows("ci_disabled_day"))[0]["made_at"] == made_at, "the list is the same"
        await bot.wait(DAY)
        await deliver(bot, issue(bot, 8, f"DISABLED {SECOND}", state="closed", at=DAY))
        days = sorted(await bot.rows("ci_disabled_day"), key=lambda row: row["day"])
        assert [row["tests"] for row in days][-1] == [[FIRST, 7, ["linux"]]]
        assert days[0]["tests"] == today["tests"]
        bot.clock.advance(bot.context.settings.record_retention_days * DAY)
        assert (await prune_disabled(bot.context))["days of disabled tests"] == 1
        assert {row["day"] for row in await bot.rows("ci_disabled_day")} == {row["day"] for row in days[1:]}


@pytest.fixture
async def silent(bot, github):
    """A bot that knows the repository, and to which GitHub delivers nothing about issues."""
    await deliver(bot, ("repository", {"action": "edited", "repository": about(bot)}))
    github.faults.add(method="HOOK", path="issues", drop=True, times=10_000)
    return bot


@pytest.mark.logic
async def test_issues_opened_before_the_installation_count(silent, github):
    await github.open_issue(UPSTREAM, "DISABLED test_a (C)", "platforms: linux")
    await github.open_issue(UPSTREAM, "We have disabled it")
    await github.open_issue(UPSTREAM, "DISABLED test_b (C)", by="mallory")
    await half_hour(silent)
    assert await platforms(silent) == {"test_a (C)": ["linux"]}
    assert len(await silent.rows("issue")) == 2


@pytest.mark.logic
async def test_more_than_a_page(silent, github):
    for number in range(101):
        await github.open_issue(UPSTREAM, f"DISABLED test_{number} (C)")
    await half_hour(silent)
    assert len(await platforms(silent)) == 101


@pytest.mark.logic
async def test_what_was_missed_later_is_repaired(silent, github):
    first = await github.open_issue(UPSTREAM, "DISABLED test_a (C)")
    second = await github.open_issue(UPSTREAM, "DISABLED test_b (C)")
    await half_hour(silent)
    stored = len(await silent.rows("delivery"))
    await half_hour(silent)
    assert len(await silent.rows("delivery")) == stored  # nothing new, nothing stored
    await github.close_issue(first)
    await github.edit_issue(second, body="platforms: win")
    await half_hour(silent)
    assert await platforms(silent) == {"test_b (C)": ["win"]}


@pytest.mark.logic
async def test_where_issues_may_not_be_read_nothing_else_suffers(silent, github):
    github.faults.add(path="/search/issues", status=403, times=100)
    await github.open_issue(UPSTREAM, "DISABLED test_a (C)")
    await half_hour(silent)
    assert await platforms(silent) == {}
    assert [row["error"] for row in await silent.rows("task") if row["state"] == "dead"] == []

"""The tests of a commit and of a run, and what changed, as people and programs see them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.ingest.tables import records
from tests.evidence.tests.reported import case, ran, xml
from tests.harness import UPSTREAM

pytestmark = pytest.mark.logic
HORIZON = 120
HOSTILE = "test_&lt;script&gt;alert(1)&lt;/script&gt;[&quot;&#10;&#x202e;x]"


@pytest.fixture
async def two(bot, github):
    """Two pushes: on the second one a test fails newly, one is fixed, one is new and one is gone."""
    base, _ = await ran(
        github,
        {"a.xml": xml(case("test_add"), case("test_mul", "failed"), case("test_old"), case("test_sub"))},
    )
    await bot.settle(horizon=HORIZON)
    bot.clock.advance(3600)
    await github.push(UPSTREAM)
    head, job = await ran(
        github,
        {
            "a.xml": xml(
                case("test_add", "failed", message="3 != 4"),
                case("test_mul"),
                case(HOSTILE, "flaky"),
                case("test_sub", "skipped"),
            ),
            "broken.xml": b"<testsuite",
        },
        conclusion="failure",
    )
    await bot.settle(horizon=HORIZON)
    return base, head, job


async def test_the_failing_tests_of_a_commit_and_a_run_are_shown(bot, two):
    _, head, job = two
    for path in (
        f"/{UPSTREAM}/commit/{head.head_sha}/tests",
        f"/{UPSTREAM}/commit/{head.head_sha[:12]}/tests",
        f"/{UPSTREAM}/run/{head.id}/tests",
    ):
        status, page = await bot.get(path)
        assert status == 200
        assert "test_add" in page
        assert "3 != 4" in page
        assert f"/{UPSTREAM}/job/{job.id}" in page
        assert "1 report unreadable" in page
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "test_mul" not in page
    assert (await bot.get(f"/{UPSTREAM}/commit/{'c' * 40}/tests"))[0] == 404
    assert (await bot.get("/org/unknown/commit/" + "b" * 40 + "/tests"))[0] == 404


async def test_the_tests_of_a_run_as_json(bot, two):
    _, head, job = two
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests")
    assert answer["counts"] == {
        "tests": 4, "passed": 2, "failed": 1, "errors": 0, "skipped": 1, "xfailed": 0, "xpassed": 0, "flaky": 1,
    }  # fmt: skip
    assert [
        (one["name"][:8], one["outcome"], one["attempts"], one["failed_attempts"])
        for one in answer["failures"]
    ] == [
        ("test_add", "failed", 1, 1),
        ("test_<sc", "flaky", 2, 1),
    ]
    first = answer["failures"][0]
    assert (first["job_id"], first["file"], first["suite"], first["message"]) == (
        job.id,
        "test_ops.py",
        "TestOps",
        "3 != 4",
    )
    assert answer["unreadable"] == [{"member": "broken.xml", "reason": "truncated at line 1"}]
    _, page = await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests?limit=1")
    assert (len(page["failures"]), page["next"]) == (1, "1")
    _, page = await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests?limit=1&before=1")
    assert ([one["outcome"] for one in page["failures"]], page["next"]) == (["flaky"], None)
    assert (await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests?attempt=2"))[1]["counts"]["tests"] == 0
    assert (await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests?verdict=great"))[0] == 400


async def test_what_changed_between_two_commits(bot, two):
    base, head, _ = two
    _, answer = await bot.get(f"/api/ci/compare/{UPSTREAM}?base={base.head_sha}&head={head.head_sha[:10]}")
    assert {one["name"][:8]: one["change"] for one in answer["tests"]} == {
        "test_add": "newly_failing", "test_mul": "fixed", "test_<sc": "new", "test_old": "gone", "test_sub": "newly_skipped",
    }  # fmt: skip
    assert (answer["base"], answer["head"], answer["families"]) == (base.head_sha, head.head_sha, 1)
    _, page = await bot.get(f"/{UPSTREAM}/commit/{head.head_sha}/tests?base={base.head_sha}")
    assert [
        title
        for title in ("Newly failing", "Fixed", "New tests", "Gone", "Newly skipped")
        if title not in page
    ] == []
    assert (await bot.get(f"/api/ci/compare/{UPSTREAM}?base={base.head_sha}&head={'c' * 40}"))[0] == 404
    _, page = await bot.get(f"/{UPSTREAM}/commit/{head.head_sha}/tests")
    assert f"?base={base.head_sha}" in page  # the newest trusted commit before is offered


async def test_one_test_everywhere_it_runs(bot, two):
    _, head, _ = two
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests")
    digest = answer["failures"][0]["test"]
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}/{digest}")
    assert (answer["test"]["name"], answer["test"]["test"]) == ("test_add", digest)
    assert [(line["backend"], line["env_group"], line["status"]) for line in answer["lines"]] == [
        (None, "linux cuda default", "flaky")
    ]
    assert [one["outcome"] for one in answer["lines"][0]["results"]] == ["failed", "passed"]
    assert [one["message"] for one in answer["failures"]] == ["3 != 4"]
    status, page = await bot.get(f"/{UPSTREAM}/test/{digest}")
    assert status == 200
    assert "3 != 4" in page
    assert (await bot.get(f"/{UPSTREAM}/test/{'0' * 16}"))[0] == 404


async def test_of_a_private_repository_nothing_is_shown(bot, two):
    base, head, _ = two
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{head.id}/tests")
    digest = answer["failures"][0]["test"]
    async with bot.store.transaction() as tx:
        same = records["repository"].c.full_name == UPSTREAM
        await tx.run(sa.update(records["repository"]).where(same).values(private=True))
    for path in (
        f"/{UPSTREAM}/commit/{head.head_sha}/tests",
        f"/{UPSTREAM}/run/{head.id}/tests",
        f"/{UPSTREAM}/test/{digest}",
        f"/api/ci/tests/{UPSTREAM}/{digest}",
        f"/api/ci/runs/{UPSTREAM}/{head.id}/tests",
        f"/api/ci/compare/{UPSTREAM}?base={base.head_sha}&head={head.head_sha}",
    ):
        status, page = await bot.get(path)
        assert status == 404, path
        assert "test_add" not in str(page)

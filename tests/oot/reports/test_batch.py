"""Many reports in one request: an answer for each, in order, as if they had come one after the other."""

import asyncio
import io
import json

import pytest
import sqlalchemy as sa

from bot.app import make_app
from bot.oot.reports.endpoints import BATCH_LIMIT
from tests.harness import L2, L3, L4, UPSTREAM, replace, report_body
from tests.serving import SQLITE, serving

PATH = "/api/oot/callback/batch"


def report(dispatch, job="build", *, status="completed", conclusion="success", run_id="900", **workflow):
    body = report_body(dispatch, status=status, conclusion=conclusion, job=job, run_id=run_id, attempt=1)
    body["workflow"].update(workflow)
    return body


async def send(bot, reports, caller=L4, **claims):
    token = bot.issuer.mint(**({"repository": caller, "run_id": "900"} | claims))
    body = reports if isinstance(reports, bytes) else json.dumps({"reports": reports}).encode()
    return await bot.request(
        "POST", PATH, data=io.BytesIO(body), headers={"Authorization": f"Bearer {token}"}
    )


async def test_each_report_is_answered_with_the_status_it_would_have_had_alone(bot, pull):
    dispatch, other = bot.dispatch(L4), bot.dispatch(L3)
    status, answer = await send(bot, [
        report(dispatch, "a", status="in_progress"),
        report(dispatch, "a"),
        report(dispatch, "a"),
        report(dispatch, "a", conclusion="failure"),
        report(dispatch, "b") | {"delivery_id": "never-sent"},
        report(dispatch, "c") | {"callback_token": other.client_payload["callback_token"]},
        report(dispatch, "d", conclusion="green"),
        [],
        report(dispatch, "e"),
    ])  # fmt: skip
    assert status == 200
    said = [
        (one["code"], one.get("error"), one.get("status"), "duplicate" in one) for one in answer["reports"]
    ]
    assert said == [
        (200, None, "in_progress", False),
        (200, None, "completed", False),
        (200, None, "completed", True),
        (409, "conflict", None, False),
        (404, "unknown_dispatch", None, False),
        (403, "forbidden", None, False),
        (400, "invalid_report", None, False),
        (400, "invalid_report", None, False),
        (200, None, "completed", False),
    ]
    assert [one["ok"] for one in answer["reports"]] == [one["code"] == 200 for one in answer["reports"]]
    assert "conclusion" in answer["reports"][6]["detail"]
    rows = {row["job_name"]: row["conclusion"] for row in await bot.rows("oot_workflow_job")}
    assert rows == {"a": "success", "e": "success"}


@pytest.fixture
def count_statements():
    """How many statements were run since the last call."""
    seen = []

    def note(_conn, _cursor, statement, _parameters, _context, _many):
        seen.append(statement)

    def counted():
        number = len(seen)
        seen.clear()
        return number

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield counted
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


async def test_failures_of_many_runs_take_no_more_statements_than_of_one(bot, pull, count_statements):
    dispatch = bot.dispatch(L4)
    taken = {}
    for runs in (1, 1, 6):  # the first finds nothing prepared
        failed = [
            report(dispatch, conclusion="failure", run_id=str(1_000 * runs + len(taken) + number))
            | {"payload": {}}  # of large bodies it is looked up first who sends them
            for number in range(runs)
        ]
        count_statements()
        _, answer = await send(bot, failed, run_id="")  # as tokens of other CIs, which name no run
        taken[runs] = count_statements()
        assert {one["code"] for one in answer["reports"]} == {200}
    assert len(await bot.rows("oot_workflow_job")) == 8
    assert taken[6] == taken[1]


async def test_one_dispatch_has_so_many_jobs_at_most(bot, pull):
    dispatch = bot.dispatch(L4)
    codes = []
    for first in (0, 400, 800):
        some = [report(dispatch, f"job {number}") for number in range(first, min(first + 400, 1_002))]
        codes += [one["code"] for one in (await send(bot, some))[1]["reports"]]
        bot.clock.advance(61)
    assert codes == [200] * 1_000 + [413] * 2
    again, last = report(dispatch, "job 7"), report(dispatch, "one too many")
    _, answer = await send(bot, [again, last])
    assert [one.get("error", one.get("duplicate")) for one in answer["reports"]] == [True, "too_many_jobs"]
    await bot.settle()
    assert (await bot.report(bot.dispatch(L3), conclusion="success"))[0] == 200


async def test_what_is_over_the_limit_of_reports_takes_no_job_s_place(bot, pull):
    narrow = replace(bot.context, settings=replace(bot.context.settings, rate_limit_per_min=2))
    dispatch, reports = bot.dispatch(L4), []
    for first in (0, 300, 600):
        await send(bot, [report(dispatch, f"job {number}") for number in range(first, first + 300)])
        bot.clock.advance(61)
    for number in range(900, 1_000):
        reports += [
            report(dispatch, f"job {number}", status="in_progress"),
            report(dispatch, f"job {number}"),
        ]
    async with serving(bot, make_app(narrow)) as served:
        _, answer = await send(served, reports)
    assert [one["code"] for one in answer["reports"]] == [200] * 2 + [429] * 198


@pytest.mark.parametrize("later", [0, 3_700])  # seconds: the first two are no longer of the last hour
async def test_one_dispatch_holds_so_much_of_its_failed_tests_at_most(bot, pull, later):
    dispatch, long = bot.dispatch(L4), "x" * 4_000
    many = [{"name": f"test_{number}", "stacktrace": long} for number in range(400)]
    for job in ("a", "b", "c"):
        bot.clock.advance(later if job == "c" else 0)
        counts = {"passed": 1, "failed": 400}
        one = report(dispatch, job, conclusion="failure", failed_tests=many, test_results=counts)
        assert (await send(bot, [one]))[1]["reports"][0]["code"] == 200
    rows = {row["job_name"]: row for row in await bot.rows("oot_workflow_job")}
    assert [len(rows[job]["failed_tests_json"] or ()) for job in ("a", "b", "c")] == [400, 400, 0]
    assert (rows["c"]["failed_tests"], rows["c"]["flags"]["failed_tests_dropped"]) == (400, 400)


async def test_350_reports_are_one_batch_and_all_are_kept(bot, pull):
    dispatch = bot.dispatch(L4)
    failed = [{"name": "test_add", "message": "expected 1"}]
    many = [report(dispatch, f"job {n}", conclusion="failure", failed_tests=failed) for n in range(350)]
    status, answer = await send(bot, many)
    assert (status, {one["code"] for one in answer["reports"]}) == (200, {200})
    rows = await bot.rows("oot_workflow_job")
    assert {row["job_name"] for row in rows} == {f"job {n}" for n in range(350)}
    assert all(row["failed_tests_json"] == failed for row in rows)
    bot.clock.advance(61)  # another minute's share
    status, answer = await send(bot, many)
    assert all(one["duplicate"] for one in answer["reports"])
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@SQLITE
async def test_500_are_taken_and_501_are_not(bot, pull):
    dispatch = bot.dispatch(L2)
    assert (await send(bot, [report(dispatch, str(n)) for n in range(500)], L2))[0] == 200
    for wrong in ([report(dispatch, "x")] * 501, [], None, {}, 7):
        status, answer = await send(bot, wrong, L2)
        assert (status, answer["error"]) == (400, "invalid_report")
        assert "reports" in answer["detail"]
    for raw in (b"", b"[]", b"null", b'{"reports": [', b'{"reports": ' + b"[" * 100_000, b"\xff"):
        status, answer = await send(bot, raw, L2)
        assert (status, answer["error"]) == (400, "invalid_report")
    assert len(await bot.rows("oot_workflow_job")) == 500


@SQLITE
async def test_the_whole_batch_is_refused_where_the_caller_is(bot, pull):
    reports = [report(bot.dispatch(L4))]
    status, answer = await send(bot, reports, "stranger/repo")
    assert (status, answer["error"]) == (403, "not_listed")
    status, answer = await send(bot, reports, lifetime=-100)
    assert (status, answer["error"]) == (401, "invalid_token")
    status, answer = await send(bot, b"x" * (BATCH_LIMIT + 1))
    assert (status, answer["error"]) == (413, "body_too_large")
    assert await bot.rows("oot_workflow_job") == []


@SQLITE
async def test_a_report_too_large_alone_is_too_large_in_a_batch(bot, pull):
    dispatch = bot.dispatch(L4)
    large = report(dispatch, "large") | {"padding": "x" * 2 * 1024 * 1024}
    _, answer = await send(bot, [large, report(dispatch, "small")])
    assert [one["code"] for one in answer["reports"]] == [413, 200]


async def test_a_batch_spends_the_share_of_its_reports_and_refused_ones_cost_nothing(bot, pull):
    narrow = replace(bot.context, settings=replace(bot.context.settings, rate_limit_per_min=3))
    dispatch = bot.dispatch(L4)
    async with serving(bot, make_app(narrow)) as served:
        reports = [
            report(dispatch, "a"),
            report(dispatch, "a", conclusion="failure"),  # refused: it contradicts the first
            report(dispatch, "b"),
            report(dispatch, "c", conclusion="green"),  # refused: it is no conclusion
            report(dispatch, "c"),
            report(dispatch, "d"),
        ]
        _, answer = await send(served, reports)
        assert [one["code"] for one in answer["reports"]] == [200, 409, 200, 400, 200, 429]
        assert 0 < answer["reports"][-1]["retry_after"] <= 60
        assert (await served.report(dispatch, job="d"))[0] == 429
        bot.clock.advance(61)
        assert (await served.report(dispatch, job="d"))[0] == 200


async def test_u4_batches_and_single_reports_at_the_same_moment_are_one_transition_a_job(bot, pull):
    dispatch = bot.dispatch(L4)
    for status in ("in_progress", "completed"):
        jobs = [report(dispatch, job, status=status) for job in ("a", "b", "c")]
        answers = await asyncio.gather(
            *(send(bot, jobs) for _ in range(8)),
            *(bot.report(dispatch, job="a", status=status) for _ in range(8)),
        )
        said = [one for _, answer in answers for one in answer.get("reports", [answer])]
        assert len(said) == 32
        assert len([one for one in said if one["ok"] and "duplicate" not in one]) == 3
        bot.clock.advance(10)
    rows = await bot.rows("oot_workflow_job")
    assert [(row["status"], row["execution_time"]) for row in rows] == [("completed", 10)] * 3

"""What does a report change, once and however often it comes? Our own dispatch and the first word stand."""

import asyncio
from collections import Counter

import pytest
import sqlalchemy as sa

from bot.app import make_app
from bot.core.errors import StoreUnavailable
from bot.database import make_store
from bot.features import FEATURES
from bot.oot.results.tables import oot_dispatch
from tests.harness import L3, L4, UPSTREAM, replace, report_body
from tests.oot.reports.reporting import SUITE, post, token_of
from tests.process import PATIENCE
from tests.serving import POSTGRES, serving


async def test_the_first_conclusion_stands(bot, pull):
    dispatch = bot.dispatch(L4)
    assert await bot.report(dispatch) == (200, {"ok": True, "status": "completed"})
    kept = await bot.rows("oot_workflow_job")
    bot.clock.advance(5)
    for status, conclusion in (("in_progress", None), ("completed", "failure"), ("completed", "cancelled")):
        code, answer = await bot.report(dispatch, status=status, conclusion=conclusion)
        assert (code, answer["error"]) == (409, "conflict")
    again = await bot.report(dispatch)
    assert again == (200, {"ok": True, "status": "completed", "duplicate": True})
    assert await bot.rows("oot_workflow_job") == kept


async def test_a_repeated_beginning_changes_nothing_before_and_after_the_end(bot, pull):
    dispatch = bot.dispatch(L4)
    assert (await bot.report(dispatch, status="in_progress"))[1] == {"ok": True, "status": "in_progress"}
    bot.clock.advance(30)
    again = (200, {"ok": True, "status": "in_progress", "duplicate": True})
    assert await bot.report(dispatch, status="in_progress") == again
    bot.clock.advance(30)
    assert (await bot.report(dispatch))[0] == 200
    kept = await bot.rows("oot_workflow_job")
    assert kept[0]["execution_time"] == 60
    assert await bot.report(dispatch, status="in_progress") == again
    assert await bot.rows("oot_workflow_job") == kept


async def test_what_the_body_claims_of_the_pull_request_and_the_caller_counts_for_nothing(bot, github, pull):
    genuine = bot.dispatch(L3)
    body = report_body(genuine, **(SUITE | {"run_id": "1", "attempt": 7}))
    claims = {
        "number": 999,
        "head": {"sha": "f" * 40},
        "base": {"sha": "e" * 40},
        "labels": [{"name": "ciflow/oot/npu"}, {"name": "ciflow/crcr/npu"}],
    }
    body["payload"] = {"repository": {"full_name": "evil/evil", "id": 1}, "pull_request": claims}
    body |= {"event_type": "nightly", "level": "L4", "downstream_repo_level": 4, "head_sha": "f" * 40,
             "pr_number": 999, "upstream_repo": "evil/evil", "verified_repo": L4, "backend": L4}  # fmt: skip
    body["workflow"] |= {"check_run_id": 12345, "queue_time": 1, "started_at": "2000-01-01T00:00:00Z"}
    checks = bot.checks(UPSTREAM, pull.head_sha)
    status, answer, _ = await post(bot, body, token_of(bot, L3, run_id="900", run_attempt="2"))
    assert (status, answer) == (200, {"ok": True, "status": "completed"})
    (row,) = await bot.rows("oot_workflow_job")
    stands = {
        "downstream_repo": L3, "downstream_repo_level": 3, "upstream_repo": UPSTREAM, "pr_number": pull.number,
        "head_sha": pull.head_sha, "delivery_id": genuine.client_payload["delivery_id"], "event_type": "pull_request",
        "run_id": "900", "run_attempt": 2, "check_run_id": "12345", "reporter_check_run_id": "9001",
        "queue_time": None, "source": "callback",
    }  # fmt: skip
    assert {name: row[name] for name in stands} == stands
    assert row["started_at"] == bot.clock.now()
    assert row["flags"]["run_id_mismatch"] is True
    assert row["flags"]["run_attempt_mismatch"] is True
    await bot.wait(60)
    assert bot.checks(UPSTREAM, pull.head_sha) == checks  # the label is not on the pull request


async def test_fifty_reports_at_the_same_moment_are_one_transition(bot, pull):
    dispatch = bot.dispatch(L4)
    for status in ("in_progress", "completed"):
        answers = await asyncio.gather(*(bot.report(dispatch, status=status) for _ in range(50)))
        assert Counter(repr(answer) for answer in answers) == {
            repr((200, {"ok": True, "status": status})): 1,
            repr((200, {"ok": True, "status": status, "duplicate": True})): 49,
        }
        bot.clock.advance(10)
    (row,) = await bot.rows("oot_workflow_job")
    assert (row["status"], row["conclusion"], row["execution_time"]) == ("completed", "success", 10)


async def test_a_report_that_the_database_refuses_harms_none_that_come_at_the_same_moment(bot, pull):
    refuse = (
        "CREATE TRIGGER odd BEFORE INSERT ON oot_workflow_job WHEN NEW.job_name = 'odd' "
        "BEGIN SELECT RAISE(ABORT, 'odd'); END"
        if bot.context.store.sqlite
        else "ALTER TABLE oot_workflow_job ADD CONSTRAINT odd CHECK (job_name <> 'odd')"
    )
    async with bot.context.store.transaction() as tx:
        await tx.run(sa.text(refuse))
    names = ["a", "b", "odd", "c", "d"]
    answers = await asyncio.gather(*(bot.report(bot.dispatch(L4), job=name) for name in names))
    assert [status for status, _ in answers] == [200, 200, 500, 200, 200]
    assert sorted(row["job_name"] for row in await bot.rows("oot_workflow_job")) == ["a", "b", "c", "d"]


@POSTGRES
async def test_two_processes_told_different_ends_at_the_same_moment_agree_on_one(bot, settings, pull):
    store = make_store(settings.database, clock=bot.clock, features=FEATURES)
    async with serving(bot, make_app(replace(bot.context, store=store))) as other:
        dispatch = bot.dispatch(L4)
        for job in ("a", "b", "c"):
            answers = await asyncio.gather(
                *(
                    (bot, other)[n % 2].report(
                        dispatch, job=job, conclusion=("success", "failure")[n // 2 % 2]
                    )
                    for n in range(24)
                )
            )
            kinds = Counter((status, answer.get("duplicate", False)) for status, answer in answers)
            assert kinds == {(200, False): 1, (200, True): 11, (409, False): 12}
    await store.close()
    assert len(await bot.rows("oot_workflow_job")) == 3


@POSTGRES
async def test_two_processes_together_accept_no_more_than_the_limit(bot, settings, pull):
    narrow = replace(bot.context.settings, rate_limit_per_min=20)
    store = make_store(settings.database, clock=bot.clock, features=FEATURES)
    mine, theirs = replace(bot.context, settings=narrow), replace(bot.context, settings=narrow, store=store)
    async with serving(bot, make_app(mine)) as one, serving(bot, make_app(theirs)) as other:
        dispatch = bot.dispatch(L4)
        calls = [(one, other)[n % 2].report(dispatch, job=f"job {n}") for n in range(60)]
        answers = Counter([status for status, _ in await asyncio.gather(*calls)])
    await store.close()
    assert answers == {200: 20, 429: 40}
    assert len(await bot.rows("oot_workflow_job")) == 20


@POSTGRES
async def test_fifty_reports_to_two_processes_at_the_same_moment_are_one_transition(bot, settings, pull):
    store = make_store(settings.database, clock=bot.clock, features=FEATURES)
    async with serving(bot, make_app(replace(bot.context, store=store))) as other:
        dispatch = bot.dispatch(L4)
        for status in ("in_progress", "completed"):
            calls = [(bot, other)[n % 2].report(dispatch, status=status) for n in range(50)]
            answers = await asyncio.gather(*calls)
            kinds = Counter((code, answer.get("duplicate", False)) for code, answer in answers)
            assert kinds == {(200, False): 1, (200, True): 49}
    await store.close()
    (counted,) = [sum(row["accepted"] for row in await bot.rows("oot_rate"))]
    assert counted == 100


@POSTGRES
async def test_a_process_that_hangs_in_its_transaction_keeps_no_report_waiting(bot, settings, pull):
    hanging = make_store(settings.database, clock=bot.clock, features=FEATURES)
    async with hanging.transaction() as tx:
        await tx.run(sa.select(oot_dispatch).with_for_update())
        status, answer = await asyncio.wait_for(bot.report(bot.dispatch(L4)), PATIENCE)
        assert (status, answer["error"]) == (503, "store_unavailable")
        assert await bot.rows("oot_workflow_job") == []
    assert await bot.report(bot.dispatch(L4)) == (200, {"ok": True, "status": "completed"})
    await hanging.close()


@POSTGRES
async def test_what_a_lost_process_had_locked_is_free_again(bot, settings, pull):
    lost = make_store(settings.database, clock=bot.clock, lost_after=0.2, features=FEATURES)

    async def hold():
        async with lost.transaction() as tx:
            await tx.run(sa.select(oot_dispatch).with_for_update())
            assert await bot.report(bot.dispatch(L4)) == (200, {"ok": True, "status": "completed"})

    with pytest.raises(StoreUnavailable):
        await hold()
    await lost.close()

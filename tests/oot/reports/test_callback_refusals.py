"""Whose reports are refused, although their token is good? A refusal leaves no row and no check run."""

import pytest

from bot.app import make_app
from tests.harness import L1, L2, L3, L4, UPSTREAM, replace, report_body
from tests.oot.reports.reporting import SUITE, encoded, post, token_of, traces
from tests.serving import SQLITE, serving


@SQLITE
async def test_who_is_not_listed_or_only_watches_is_refused(bot, pull):
    before = await traces(bot)
    for caller, dispatched in (("stranger/repo", L4), (L1, L1), (UPSTREAM, L4), ("org/tpu-backend/x", L4)):
        body = report_body(bot.dispatch(dispatched), **SUITE)
        status, answer, _ = await post(bot, body, token_of(bot, caller))
        assert (status, answer["error"]) == (403, "not_listed")
        assert caller in answer["detail"]
    assert await traces(bot) == before


@SQLITE
async def test_who_is_not_listed_can_be_ignored_kindly(bot, pull):
    before = await traces(bot)
    lenient = replace(bot.context, settings=replace(bot.context.settings, unlisted="ignore"))
    async with serving(bot, make_app(lenient)) as served:
        for caller in ("stranger/repo", L1):
            answer = await post(served, report_body(bot.dispatch(L4), **SUITE), token_of(bot, caller))
            assert answer[:2] == (200, {"ok": True, "status": "ignored"})
    assert await traces(bot) == before


@SQLITE
async def test_who_is_not_listed_is_refused_before_much_of_it_is_looked_at(bot, pull):
    much = b"[" * 100_000
    for path in ("/api/oot/callback", "/api/oot/callback/batch"):
        for caller, refusal in (("stranger/repo", (403, "not_listed")), (L4, (400, "invalid_report"))):
            headers = {"Authorization": f"Bearer {token_of(bot, caller)}"}
            status, answer = await bot.request("POST", path, data=much, headers=headers)
            assert (status, answer["error"]) == refusal
    lenient = replace(bot.context, settings=replace(bot.context.settings, unlisted="ignore"))
    async with serving(bot, make_app(lenient)) as served:
        headers = {"Authorization": f"Bearer {token_of(bot, 'stranger/repo')}"}
        status, answer = await served.request("POST", "/api/oot/callback", data=much, headers=headers)
        assert (status, answer["error"]) == (413, "body_too_large")


@SQLITE
async def test_a_name_taken_over_by_another_repository_is_refused(bot, pull):
    await bot.list_backends(f"L4: [{{repo: {L4}, device: tpu, repository_id: 4242}}]")
    before = await traces(bot)
    body = report_body(bot.dispatch(L4), **SUITE)
    for claims in ({"repository_id": "4243"}, {"repository_id": "42420"}):
        status, answer, _ = await post(bot, body, token_of(bot, L4, **claims))
        assert (status, answer["error"]) == (403, "forbidden")
        assert "repository_id" in answer["detail"]
    assert await traces(bot) == before
    assert (await post(bot, body, token_of(bot, L4, repository_id="4242")))[0] == 200


@SQLITE
async def test_a_delivery_that_never_went_to_the_caller_is_unknown(bot, pull):
    await bot.list_backends(f"L2: [org/newcomer, {L2}]")
    before = await traces(bot)
    body = report_body(bot.dispatch(L2), **SUITE)
    answers = [
        await post(bot, body, token_of(bot, "org/newcomer")),
        await post(bot, body | {"delivery_id": "never-sent"}, token_of(bot, L2)),
        await post(bot, body | {"delivery_id": body["delivery_id"].upper() + "0"}, token_of(bot, L2)),
    ]
    for status, answer, _ in answers:
        assert (status, answer["error"]) == (404, "unknown_dispatch")
    assert await traces(bot) == before


@SQLITE
async def test_a_report_must_return_the_token_of_its_own_dispatch(bot, github, pull):
    earlier = {repo: bot.dispatch(repo).client_payload["callback_token"] for repo in (L2, L3, L4)}
    await github.push_commit(pull)
    await bot.settle()
    before = await traces(bot)
    mine = bot.dispatch(L4).client_payload["callback_token"]
    header, claims, signature = mine.split(".")
    refused = [
        (L4, None), (L3, None), (L4, ""), (L4, "guessed"), (L4, earlier[L4]), (L4, earlier[L3]),
        (L4, bot.dispatch(L3).client_payload["callback_token"]), (L4, mine + "x"),
        (L4, f"{encoded({'alg': 'none'})}.{claims}."), (L4, f"{header}.{encoded({})}.{signature}"),
        (L2, "guessed"), (L2, earlier[L2]), (L2, mine),
    ]  # fmt: skip
    for repo, token in refused:
        body = report_body(bot.dispatch(repo), **SUITE) | {"callback_token": token}
        status, answer, _ = await post(bot, body, token_of(bot, repo))
        assert (status, answer["error"]) == (403, "forbidden"), (repo, token)
        assert "client_payload.callback_token" in answer["detail"]
    assert await traces(bot) == before
    unasked = report_body(bot.dispatch(L2), **SUITE) | {"callback_token": None}
    assert (await post(bot, unasked, token_of(bot, L2)))[0] == 200
    bot.clock.advance(36 * 24 * 3600)
    late = report_body(bot.dispatch(L4), **SUITE)
    assert (await post(bot, late, token_of(bot, L4)))[0] == 403


@pytest.mark.logic
async def test_too_many_reports_a_minute_are_refused_and_refused_ones_do_not_count(bot, pull):
    narrow = replace(bot.context, settings=replace(bot.context.settings, rate_limit_per_min=3))
    dispatch = bot.dispatch(L4)
    async with serving(bot, make_app(narrow)) as served:
        for token in ("", "guessed"):
            bad = report_body(dispatch, **SUITE) | {"callback_token": token}
            for _ in range(5):
                assert (await post(served, bad, token_of(bot, L4)))[0] == 403
        for job in ("a", "b", "c"):
            assert (await served.report(dispatch, job=job))[0] == 200
        kept = await bot.rows("oot_workflow_job")
        for wait in (20, 20):
            body = report_body(dispatch, **(SUITE | {"job": "d"}))
            status, answer, headers = await post(served, body, token_of(bot, L4))
            assert (status, answer["error"]) == (429, "rate_limited")
            assert 0 < int(headers["Retry-After"]) <= 60
            bot.clock.advance(wait)
        assert await bot.rows("oot_workflow_job") == kept
        assert (await served.report(bot.dispatch(L3)))[0] == 200  # others are not held up
        bot.clock.advance(int(headers["Retry-After"]) - 20)
        assert (await served.report(dispatch, job="d"))[0] == 200


@SQLITE
async def test_while_no_allowlist_is_in_force_the_caller_is_asked_to_come_back(bot, pull):
    body = report_body(bot.dispatch(L4), **SUITE)
    async with bot.store.transaction() as tx:
        await tx.conn.exec_driver_sql("UPDATE allowlist_version SET valid = false")
    for unlisted in ("refuse", "ignore"):
        context = replace(bot.context, settings=replace(bot.context.settings, unlisted=unlisted))
        async with serving(bot, make_app(context)) as served:
            status, answer, headers = await post(served, body, token_of(bot, L4))
        assert (status, answer["error"], headers["Retry-After"]) == (503, "no_allowlist", "10")
    assert await bot.rows("oot_workflow_job") == []

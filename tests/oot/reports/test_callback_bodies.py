"""Which reports are taken, and whose? A refusal names the field, and leaves no row and no check run."""

import copy
import json
import random

import pytest

from bot.app import make_app
from bot.oot.reports.endpoints import REPORT_LIMIT
from tests.harness import L1, L2, L3, L4, UPSTREAM, replace, report_body
from tests.oot.reports.reporting import PATH, SUITE, encoded, post, token_of, traces
from tests.serving import SQLITE, serving

MISSING = object()
# field, value -> a word the detail must have
MALFORMED = [
    *[(field, value, field.rpartition(".")[2])
      for field in ("delivery_id", "workflow.status", "workflow.name", "workflow.job_name")
      for value in (MISSING, None, 7, [], {}, "")],
    *[("workflow.run_id", value, "run_id") for value in (MISSING, None, [], {}, "", 1.5, True, -1, 10**30)],
    *[("workflow", value, "workflow") for value in (MISSING, None, [], "x")],
    *[("workflow.conclusion", value, "conclusion") for value in (MISSING, None, "", "green", "SUCCESS", 1, [])],
    *[("workflow.run_attempt", value, "run_attempt") for value in (0, -1, "", "x", "1.0", "٣", [], 10**9)],
    *[("workflow.check_run_id", value, "check_run_id") for value in ([], {}, 1.5, "")],
    *[(f"workflow.test_results.{name}", value, name)
      for name in ("passed", "failed", "skipped", "total") for value in (-1, "1", 1.5, 2**63, [])],
    ("workflow.status", "queued", "in_progress or completed"),
    ("workflow.status", "x" * 100_000, "in_progress or completed"),
    ("workflow.test_results", [], "test_results"),
    ("workflow.failed_tests", {}, "failed_tests"),
    ("workflow.failed_tests", [{}], "name"),
    ("workflow.failed_tests", ["test_add"], "failed_tests"),
    ("workflow.failed_tests", [{"name": 1}], "name"),
    ("workflow.artifact_url", 1, "artifact_url"),
    ("workflow.url", {}, "url"),
    ("workflow.environment", [], "environment"),
    ("callback_token", 1, "callback_token"),
    ("delivery_id", "a\x00b", "delivery_id"),
    ("workflow.name", "a\x00b", "workflow.name"),
    ("workflow.job_name", "a\x00b", "workflow.job_name"),
    ("workflow.run_id", "9\x000", "workflow.run_id"),
    ("workflow.name", "x" * 1001, "workflow.name"),
    ("workflow.job_name", "測" * 1001, "workflow.job_name"),
    ("workflow.run_id", "x" * 201, "workflow.run_id"),
    ("workflow.check_run_id", "é" * 201, "workflow.check_run_id"),
    ("delivery_id", "🚀" * 201, "delivery_id"),
]  # fmt: skip


def with_field(body, field, value):
    made = copy.deepcopy(body)
    *parents, last = field.split(".")
    at = made
    for name in parents:
        at = at.setdefault(name, {})
    if value is MISSING:
        del at[last]
    else:
        at[last] = value
    return made


@SQLITE
async def test_a_malformed_report_is_refused_by_the_name_of_its_field(bot, pull):
    body, before, wrong = report_body(bot.dispatch(L4), **SUITE), await traces(bot), []
    for field, value, word in MALFORMED:
        status, answer, _ = await post(bot, with_field(body, field, value), token_of(bot, L4))
        named = word in answer.get("detail", "") and len(answer["detail"]) < 1000
        if (status, answer.get("error")) != (400, "invalid_report") or not named:
            wrong.append((field, str(value)[:40], status, str(answer)[:300]))
    assert wrong == []
    assert await traces(bot) == before


@SQLITE
async def test_what_is_no_report_at_all_is_refused(bot, pull):
    before = await traces(bot)
    body = json.dumps(report_body(bot.dispatch(L4), **SUITE)).encode()
    deep = b'{"a":' * 1000 + b"1" + b"}" * 1000
    hidden = body[:-1] + b', "more": ' + deep + b"}"
    lists = body[:-1] + b', "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for raw in (
        b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", body + body, body[:-1], deep, hidden, lists,
        body.replace(b'"900"', b"9" * 5000), body[:-1] + b', "more": NaN}', body.replace(b'"CI"', b'"\xff"'), body.replace(b'"CI"', b'"\\ud800"'),
    ):  # fmt: skip
        status, answer, _ = await post(bot, raw, token_of(bot, L4))
        assert (status, answer["error"]) == (400, "invalid_report"), raw[:60]
    status, answer, _ = await post(bot, body, token_of(bot, L4), **{"Content-Encoding": "gzip"})
    assert (status, answer["error"]) == (415, "unsupported_encoding")
    assert await traces(bot) == before


@pytest.mark.logic
async def test_two_mib_are_taken_and_one_byte_more_is_not(bot, pull):
    body = report_body(bot.dispatch(L4), **SUITE)
    spare = REPORT_LIMIT - len(json.dumps(body | {"padding": ""}).encode())
    assert REPORT_LIMIT == 2 * 1024 * 1024
    before = await traces(bot)
    status, answer, _ = await post(bot, body | {"padding": "x" * (spare + 1)}, token_of(bot, L4))
    assert (status, answer["error"]) == (413, "body_too_large")
    assert "2 MiB" in answer["detail"]
    assert await traces(bot) == before
    assert (await post(bot, body | {"padding": "x" * spare}, token_of(bot, L4)))[0] == 200


@pytest.mark.logic
async def test_strange_text_is_cleaned_and_kept(bot, pull):
    status, _ = await bot.report(
        bot.dispatch(L4), conclusion="failure", failed_tests=[{"name": "a\x00b", "message": "m\x00"}],
        url="https://user:pw@example.org/", artifact_url="javascript:alert(1)", environment={"a\x00": "b\x00"},
    )  # fmt: skip
    assert status == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert row["failed_tests_json"] == [{"name": "ab", "message": "m"}]
    assert row["environment"] == {"a": "b"}
    assert (row["workflow_run_url"], row["artifact_url"]) == (None, None)
    assert row["flags"]["url_dropped"] is True
    assert row["flags"]["artifact_url_dropped"] is True


async def in_pieces(raw):
    for start in range(0, len(raw), 65_536):
        yield raw[start : start + 65_536]


@SQLITE
async def test_the_limit_is_the_same_for_a_body_without_a_length(bot, pull):
    body = report_body(bot.dispatch(L4), **SUITE)
    spare = REPORT_LIMIT - len(json.dumps(body | {"padding": ""}).encode())
    for more, expected in ((1, 413), (0, 200)):
        raw = json.dumps(body | {"padding": "x" * (spare + more)}).encode()
        headers = {"Authorization": f"Bearer {token_of(bot, L4)}", "Content-Type": "application/json"}
        async with bot.http.post(bot.url + PATH, data=in_pieces(raw), headers=headers) as answer:
            assert (answer.status, len(raw)) == (expected, REPORT_LIMIT + more)
            assert "Content-Length" not in answer.request_info.headers


@pytest.mark.logic
async def test_of_1001_failed_tests_1000_are_kept_and_the_rest_is_counted_as_json_shows(bot, pull):
    tests = [{"name": f"test_{number}", "line": number} for number in range(1001)]
    counts = {"passed": 1, "failed": 1001}
    answer = await bot.report(bot.dispatch(L4), conclusion="failure", failed_tests=tests, test_results=counts)
    assert answer[0] == 200
    _, shown = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    (job,) = shown["jobs"]
    assert [test["name"] for test in job["failed_tests_json"]] == [f"test_{number}" for number in range(1000)]
    assert job["flags"]["failed_tests_dropped"] == 1
    assert (job["failed_tests"], job["total_tests"]) == (1001, 1002)


def garbage(chance, body):
    """Bytes that are no report, or hardly one."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    raw = bytearray(body)
    for _ in range(chance.randrange(1, 8)):
        at = chance.randrange(len(raw))
        if kind == 1:
            raw[at] = chance.randrange(256)
        elif kind == 2:
            del raw[at : at + chance.randrange(1, 50)]
        else:
            raw[at:at] = chance.choice(
                [b"{", b"[", b'"', b"\\", b"\x00", b"null", b"1e999", b"\\u0000", b"\xf0\x9f"]
            )
    return bytes(raw)


@pytest.mark.logic
async def test_no_garbage_breaks_anything(bot, pull):
    chance, body = random.Random(11), json.dumps(report_body(bot.dispatch(L4), **SUITE)).encode()
    wrong = []
    for _ in range(250):
        raw = garbage(chance, body)
        status, answer, _ = await post(bot, raw, token_of(bot, L4))
        if status >= 500 or (status != 200 and not answer.get("detail")):
            wrong.append((status, answer, raw))
    assert wrong == []
    assert (await bot.report(bot.dispatch(L4), job="after all that"))[0] == 200


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

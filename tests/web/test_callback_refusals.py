"""Whose reports are taken, and which are refused? A refusal leaves no row and no check run."""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import hmac
import io
import json
from collections import Counter
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.store import Store
from bot.web.callback import LIMIT
from bot.web.routes import make_app
from tests.harness import L1, L2, L3, L4, UPSTREAM, replace, report_body
from tests.serving import POSTGRES, SQLITE, serving

PATH = "/api/oot/callback"
SUITE = {"status": "completed", "conclusion": "success", "job": "build", "run_id": "900", "attempt": 1}


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    return made


async def traces(bot):
    """What an accepted report would leave behind."""
    await bot.settle()
    checks = [
        (run.id, run.status, run.conclusion, run.output) for run in bot.github.check_runs_all(UPSTREAM)
    ]
    return await bot.rows("oot_workflow_job"), await bot.rows("oot_rate"), checks


async def post(bot, body, token, **headers):
    """Send a report; returns status, JSON and headers."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} | headers
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    async with bot.http.post(bot.url + PATH, data=io.BytesIO(raw), headers=sent) as answer:
        return answer.status, await answer.json(), answer.headers


def token_of(bot, caller, **claims):
    return bot.issuer.mint(**({"repository": caller, "run_id": "900"} | claims))


async def public_pem(bot) -> tuple[str, bytes]:
    """The issuer's key id and public key, as anybody can fetch them."""
    async with bot.http.get(bot.issuer.url + "/.well-known/jwks") as answer:
        (key,) = (await answer.json())["keys"]
    public = jwt.PyJWK(key, algorithm="RS256").key
    return key["kid"], public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def encoded(part) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


async def forged_tokens(bot):
    """name: a token nobody should believe, and a word the refusal must have."""
    honest = token_of(bot, L4)
    header, claims, signature = honest.split(".")
    kid, pem = await public_pem(bot)
    now = bot.clock.now() // 1000
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    said = jwt.decode(honest, options={"verify_signature": False})

    def resigned(key, algorithm="RS256", **head):
        return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid} | head)

    confused = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{claims}"
    mac = hmac.new(pem, confused.encode(), hashlib.sha256).digest()
    other = encoded(said | {"repository": L3})
    return {
        "empty": ("", "Bearer"),
        "no JWT": ("abc", "not a JWT"),
        "three empty parts": ("..", "not a JWT"),
        "longer than 8 KiB": (honest + "A" * 8192, "Bearer"),
        "alg none": (f"{encoded({'alg': 'none', 'typ': 'JWT'})}.{claims}.", "RS256"),
        "alg None": (f"{encoded({'alg': 'None', 'kid': kid})}.{claims}.{signature}", "RS256"),
        "HS256 with the public key": (f"{confused}.{encoded(mac)}", "RS256"),
        "RS512": (resigned(stranger, "RS512"), "RS256"),
        "claims changed": (f"{header}.{other}.{signature}", "not valid"),
        "signature cut": (honest[:-10], "not valid"),
        "a stranger's key under a known id": (resigned(stranger), "not valid"),
        "an unknown key id": (resigned(stranger, kid="unknown"), "does not publish"),
        "expired": (token_of(bot, L4, lifetime=-61), "expired"),
        "issued tomorrow": (token_of(bot, L4, iat=now + 86400, exp=now + 86700), "not valid yet"),
        "good from tomorrow": (token_of(bot, L4, nbf=now + 86400), "not valid yet"),
        "a quarter of an hour and a second": (token_of(bot, L4, lifetime=901), "lives longer"),
        "thirty years": (token_of(bot, L4, lifetime=30 * 365 * 86400), "lives longer"),
        "no exp": (token_of(bot, L4, exp=None), "exp"),
        "no iat": (token_of(bot, L4, iat=None), "iat"),
        "no aud": (token_of(bot, L4, aud=None), "aud"),
        "no iss": (token_of(bot, L4, iss=None), "issuer"),
        "exp is a text": (token_of(bot, L4, exp="tomorrow"), "exp"),
        "exp is true": (token_of(bot, L4, exp=True), "exp"),
        "another audience": (token_of(bot, L4, audience="https://github.com/org"), "ootbot"),
        "a list of audiences": (token_of(bot, L4, aud=["ootbot", "other"]), "audience"),
        "another issuer": (token_of(bot, L4, iss="http://127.0.0.1:9"), "issuer"),
        "the issuer with a slash": (token_of(bot, L4, iss=bot.issuer.url + "/"), "issuer"),
        "no repository": (token_of(bot, ""), "repository"),
    }


@SQLITE
async def test_a_token_that_proves_nothing_is_refused(bot, pull):
    body, before, wrong = report_body(bot.dispatch(L4), **SUITE), await traces(bot), {}
    tokens = {"none": (None, "Bearer")} | await forged_tokens(bot)
    for name, (token, word) in tokens.items():
        status, answer, headers = await post(bot, body, token)
        refused = (status, answer["error"]) == (401, "invalid_token") and "WWW-Authenticate" in headers
        if not refused or word not in answer["detail"]:
            wrong[name] = (status, answer)
    assert wrong == {}
    assert await traces(bot) == before
    status, answer, _ = await post(bot, body, None, Authorization=f"Basic {token_of(bot, L4)}")
    assert (status, answer["error"]) == (401, "invalid_token")
    assert (await post(bot, body, token_of(bot, L4, lifetime=-59)))[0] == 200  # a minute of leeway


@SQLITE
async def test_a_refused_token_never_appears_in_the_answer(bot, pull):
    for token in (token_of(bot, L4, lifetime=-61), token_of(bot, "stranger/repo")):
        _, answer, _ = await post(bot, report_body(bot.dispatch(L4), **SUITE), token)
        assert token.rpartition(".")[2] not in json.dumps(answer)


@SQLITE
async def test_without_the_issuers_keys_the_caller_is_asked_to_come_back(bot, github, issuer, pull):
    before = await traces(bot)
    issuer.outage = True
    for _ in range(3):
        status, answer, headers = await post(bot, report_body(bot.dispatch(L4), **SUITE), token_of(bot, L4))
        assert (status, answer["error"]) == (503, "issuer_unavailable")
        assert int(headers["Retry-After"]) > 0
    assert issuer.fetches == 1
    assert await traces(bot) == before
    issuer.outage = False
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4)))[0] == 200


@SQLITE
async def test_keys_once_fetched_serve_for_a_day_while_the_issuer_is_down(bot, issuer, pull):
    assert (await bot.report(bot.dispatch(L4), job="first"))[0] == 200
    issuer.outage = True
    bot.clock.advance(23 * 3600)
    assert (await bot.report(bot.dispatch(L4), job="second"))[0] == 200
    bot.clock.advance(2 * 3600)
    assert (await bot.report(bot.dispatch(L4), job="third"))[0] == 503


@SQLITE
async def test_a_new_key_is_fetched_at_most_once_a_minute(bot, issuer, pull):
    assert (await bot.report(bot.dispatch(L4), job="old key"))[0] == 200
    bot.clock.advance(61)
    issuer.rotate()
    assert (await bot.report(bot.dispatch(L4), job="new key"))[0] == 200
    assert issuer.fetches == 2
    issuer.rotate(keep_old=False)
    for _ in range(5):
        assert (await bot.report(bot.dispatch(L4), job="newest key"))[0] == 401
    assert issuer.fetches == 2
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4), job="newest key"))[0] == 200
    assert issuer.fetches == 3


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


async def list_backends(bot, text: str) -> None:
    """Put another allowlist in force."""
    Path(bot.context.settings.allowlist).write_text(text)
    await bot.wait(61)


@SQLITE
async def test_a_name_taken_over_by_another_repository_is_refused(bot, pull):
    await list_backends(bot, f"L4: [{{repo: {L4}, device: tpu, repository_id: 4242}}]")
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
    await list_backends(bot, f"L2: [org/newcomer, {L2}]")
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
    ("workflow.name", "x" * 5000, "name"),
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


async def test_two_mib_are_taken_and_one_byte_more_is_not(bot, pull):
    body = report_body(bot.dispatch(L4), **SUITE)
    spare = LIMIT - len(json.dumps(body | {"padding": ""}).encode())
    assert LIMIT == 2 * 1024 * 1024
    before = await traces(bot)
    status, answer, _ = await post(bot, body | {"padding": "x" * (spare + 1)}, token_of(bot, L4))
    assert (status, answer["error"]) == (413, "body_too_large")
    assert "2 MiB" in answer["detail"]
    assert await traces(bot) == before
    assert (await post(bot, body | {"padding": "x" * spare}, token_of(bot, L4)))[0] == 200


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


@POSTGRES
async def test_two_processes_told_different_ends_at_the_same_moment_agree_on_one(bot, settings, pull):
    store = Store(settings.database, clock=bot.clock)
    async with serving(bot, make_app(replace(bot.context, store=store))) as other:
        dispatch = bot.dispatch(L4)
        for job in ("a", "b", "c"):
            answers = await asyncio.gather(
                *(
                    (bot, other)[n % 2].report(dispatch, job=job, conclusion=("success", "failure")[n // 2 % 2])
                    for n in range(24)
                )
            )
            kinds = Counter((status, answer.get("duplicate", False)) for status, answer in answers)
            assert kinds == {(200, False): 1, (200, True): 11, (409, False): 12}
    await store.close()
    assert len(await bot.rows("oot_workflow_job")) == 3

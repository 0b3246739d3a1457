"""What may an outside relay report, and what not? /api/oot/results, and random JSON at every endpoint for reports."""

import copy
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.app import make_app
from tests.harness import L3, L4, UPSTREAM, replace, report_body
from tests.serving import SQLITE, serving

TOKEN = "a relay's token"
SUITE = {"status": "completed", "conclusion": "success", "job": "build", "run_id": "900", "attempt": 1}


@pytest.fixture
async def relayed(bot):
    """The bot with a token for relays."""
    open_to_relays = replace(bot.context, settings=replace(bot.context.settings, relay_token=TOKEN))
    async with serving(bot, make_app(open_to_relays)) as served:
        yield served


def envelope(
    repo="far/backend", *, level="L2", queue_time=None, execution_time=None, number=7, sha="a" * 40, **report
):
    """What a relay sends: what it vouches for, and the backend's report."""
    workflow = {
        "status": "completed",
        "conclusion": "success",
        "name": "CI",
        "job_name": "build",
        "run_id": "900",
    }
    payload = {
        "pull_request": {"number": number, "head": {"sha": sha}},
        "repository": {"full_name": UPSTREAM},
    }
    return {
        "trusted": {
            "verified_repo": repo,
            "downstream_repo_level": level,
            "ci_metrics": {"queue_time": queue_time, "execution_time": execution_time},
        },
        "untrusted": {
            "callback_payload": {
                "event_type": "pull_request",
                "delivery_id": "d-1",
                "payload": payload,
                "workflow": workflow | report,
            }
        },
    }


async def relay(relayed, body, token=TOKEN):
    headers = {} if token is None else {"X-OOT-Relay-Token": token}
    return await relayed.request("POST", "/api/oot/results", json=body, headers=headers)


@SQLITE
async def test_without_a_token_of_ours_the_door_is_closed(bot):
    for token in (None, "", TOKEN):
        status, answer = await relay(bot, envelope(), token)
        assert (status, answer["error"]) == (404, "not_found")
    assert await bot.rows("oot_workflow_job") == []


@SQLITE
async def test_only_the_right_token_is_accepted(relayed):
    for token in (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"Bearer {TOKEN}", "é"):
        status, answer = await relay(relayed, envelope(), token)
        assert (status, answer["error"]) == (401, "invalid_token")
        assert TOKEN not in str(answer)
    assert await relayed.rows("oot_workflow_job") == []
    assert (await relay(relayed, envelope()))[0] == 200


@pytest.mark.logic
async def test_the_longest_names_and_ids_are_kept_whatever_their_letters(relayed):
    letters = [chr(number) for number in range(0x4E00, 0x9FFF)]
    random.Random(7).shuffle(letters)  # nothing a database could press together
    name, other, run, delivery = (
        "".join(letters[first : first + count])
        for first, count in ((0, 333), (333, 333), (666, 66), (732, 66))
    )
    body = envelope(f"{'o' * 100}/{'r' * 100}", name=name, job_name=other, run_id=run)
    body["untrusted"]["callback_payload"]["delivery_id"] = delivery
    assert (await relay(relayed, body))[0] == 200
    (row,) = await relayed.rows("oot_workflow_job")
    assert (row["workflow_name"], row["job_name"]) == (name, other)
    assert (row["run_id"], row["delivery_id"]) == (run, delivery)


@pytest.mark.logic
async def test_a_relayed_report_is_shown_as_such_and_never_reaches_the_pull_request(relayed, github, pull):
    before = relayed.checks(UPSTREAM, pull.head_sha)
    body = envelope(L4, level="L4", queue_time=12.5, execution_time=90, number=pull.number, sha=pull.head_sha,
                    conclusion="failure", test_results={"passed": 3, "failed": 1, "skipped": 0},
                    failed_tests=[{"name": "test_add"}])  # fmt: skip
    assert await relay(relayed, body) == (200, {"ok": True, "status": "completed"})
    await relayed.wait(120)
    assert relayed.checks(UPSTREAM, pull.head_sha) == before
    assert github.comments(pull) == []
    _, shown = await relayed.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    (job,) = shown["jobs"]
    assert (job["source"], job["downstream_repo"], job["downstream_repo_level"]) == ("relay", L4, 4)
    assert (job["queue_time"], job["execution_time"], job["conclusion"]) == (12.5, 90, "failure")
    assert [test["name"] for test in job["failed_tests_json"]] == ["test_add"]
    _, backend = await relayed.get(f"/api/oot/backends/{L4}")
    assert [row["source"] for row in backend["jobs"]] == ["relay"]


@pytest.mark.logic
async def test_a_relayed_job_that_goes_silent_never_reaches_the_pull_request_either(relayed, github, pull):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await relayed.report(relayed.dispatch(L4), run_id=str(run.id))
    await github.finish_run(run, "success")
    await relayed.settle(horizon=20)
    before = relayed.checks(UPSTREAM, pull.head_sha)
    assert before["oot / gate"][:2] == ("completed", "success")
    body = envelope(number=pull.number, sha=pull.head_sha, status="in_progress", conclusion=None)
    body["untrusted"]["callback_payload"]["payload"]["repository"]["full_name"] = UPSTREAM.title()
    assert (await relay(relayed, body))[0] == 200
    await relayed.wait(7 * 3600)
    (job,) = [row for row in await relayed.rows("oot_workflow_job") if row["source"] == "relay"]
    assert job["conclusion"] == "timed_out"
    assert relayed.checks(UPSTREAM, pull.head_sha) == before
    assert github.comments(pull) == []


@pytest.mark.logic
async def test_what_a_later_report_does_not_say_is_kept(relayed):
    begun = envelope(status="in_progress", conclusion=None, queue_time=30, url="https://ci.example/1",
                     environment={"driver": "1.2"}, test_results={"total": 10})  # fmt: skip
    assert (await relay(relayed, begun))[1] == {"ok": True, "status": "in_progress"}
    relayed.clock.advance(60)
    assert (await relay(relayed, envelope(execution_time=55)))[1] == {"ok": True, "status": "completed"}
    (row,) = await relayed.rows("oot_workflow_job")
    assert (row["queue_time"], row["execution_time"], row["conclusion"]) == (30, 55, "success")
    assert (row["workflow_run_url"], row["environment"]) == ("https://ci.example/1", {"driver": "1.2"})
    assert row["total_tests"] == 10
    again = await relay(relayed, envelope(execution_time=1))
    assert again == (200, {"ok": True, "status": "completed", "duplicate": True})
    status, answer = await relay(relayed, envelope(conclusion="failure"))
    assert (status, answer["error"]) == (409, "conflict")
    assert await relayed.rows("oot_workflow_job") == [row]


@pytest.mark.logic
async def test_times_that_were_not_measured_stay_unknown(relayed):
    await relay(relayed, envelope(status="in_progress", conclusion=None))
    relayed.clock.advance(60)
    await relay(relayed, envelope())
    (row,) = await relayed.rows("oot_workflow_job")
    assert (row["queue_time"], row["execution_time"]) == (None, None)


@SQLITE
async def test_a_relay_cannot_change_what_a_backend_reported_itself(relayed, pull):
    dispatch = relayed.dispatch(L4)
    assert (await relayed.report(dispatch, status="in_progress"))[0] == 200
    forged = envelope(L4, level="L4", number=pull.number, sha=pull.head_sha)
    forged["untrusted"]["callback_payload"] = report_body(dispatch, **SUITE)
    assert (await relay(relayed, forged))[0] == 200
    rows = {row["source"]: row["status"] for row in await relayed.rows("oot_workflow_job")}
    assert rows == {"callback": "in_progress", "relay": "completed"}
    await relayed.settle(horizon=20)
    assert relayed.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("in_progress", None)


MISSING = object()
MALFORMED = [
    *[("trusted", value, "trusted") for value in (MISSING, None, [], "x")],
    *[("trusted.verified_repo", value, "verified_repo") for value in (MISSING, None, 7, "", "org", "a/b/c", "a b/c", "../x")],
    *[("trusted.downstream_repo_level", value, "downstream_repo_level") for value in (MISSING, None, 0, 5, "L5", "4", True, [])],
    *[("trusted.ci_metrics.queue_time", value, "queue_time") for value in (-1, "1", [], True, 1e300)],
    *[("trusted.ci_metrics", value, "ci_metrics") for value in ([], "x", 1)],
    *[("untrusted", value, "untrusted") for value in (MISSING, None, [])],
    *[("untrusted.callback_payload", value, "") for value in (MISSING, None, [], "x", {})],
    *[("untrusted.callback_payload.workflow.run_id", value, "run_id") for value in (MISSING, -1, 1.5, "", [])],
    *[("untrusted.callback_payload.payload.pull_request.number", value, "number") for value in (0, -7, "7", 1.5, True, 2**60)],
    *[("untrusted.callback_payload.payload.pull_request.head.sha", value, "hexadecimal")
      for value in ("", "a" * 39, "g" * 40, "a" * 41, 7, "<script>")],
    *[("untrusted.callback_payload.payload.repository.full_name", value, "full_name")
      for value in (MISSING, None, 7, "", "org", "a/b/c", "a/b\n", "javascript:alert(1)/x")],
    *[("untrusted.callback_payload.payload", value, "full_name") for value in (MISSING, None, [], "x", 7)],
]  # fmt: skip


def with_field(body, field, value):
    made = copy.deepcopy(body)
    *parents, last = field.split(".")
    at = made
    for name in parents:
        at = at[name]
    if value is MISSING:
        del at[last]
    else:
        at[last] = value
    return made


@SQLITE
async def test_u12_u16_what_is_not_vouched_for_is_checked_field_by_field(relayed):
    wrong = []
    for field, value, word in MALFORMED:
        status, answer = await relay(relayed, with_field(envelope(), field, value))
        if (status, answer.get("error")) != (400, "invalid_report") or word not in answer["detail"]:
            wrong.append((field, str(value)[:40], status, str(answer)[:200]))
    assert wrong == []
    assert await relayed.rows("oot_workflow_job") == []


@SQLITE
async def test_u16_hostile_addresses_are_dropped_and_ids_are_never_joined(relayed):
    hostile = {"url": "javascript:alert(1)", "artifact_url": "https://user:pw@example.org/"}
    await relay(relayed, envelope(job_name="a/b", name="c", **hostile))
    await relay(relayed, envelope(job_name="b", name="c/a", **hostile))
    rows = await relayed.rows("oot_workflow_job")
    assert len(rows) == 2
    for row in rows:
        assert (row["workflow_run_url"], row["artifact_url"]) == (None, None)
        assert {"url_dropped", "artifact_url_dropped"} <= set(row["flags"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
LEAVES = (
    "delivery_id", "event_type", "payload", "callback_token", "workflow", "workflow.status", "workflow.name",
    "workflow.run_id", "workflow.run_attempt", "workflow.job_name", "workflow.conclusion", "workflow.url",
    "workflow.check_run_id", "workflow.test_results", "workflow.failed_tests", "workflow.artifact_url",
    "workflow.environment", "payload.pull_request", "payload.repository",
)  # fmt: skip


@SQLITE
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=JSON, fields=st.lists(st.sampled_from(LEAVES), max_size=3, unique=True),
    path=st.sampled_from(("/api/oot/callback", "/api/oot/callback/batch", "/api/oot/results")), alone=st.booleans(),
)  # fmt: skip
async def test_random_json_is_refused_or_taken_and_never_an_error_of_ours(
    relayed, pull, value, fields, path, alone
):
    report = report_body(relayed.dispatch(L3), **SUITE)
    report["payload"] = {"pull_request": {"number": 7}, "repository": {"full_name": UPSTREAM}}
    for field in fields:
        parent, _, last = field.rpartition(".")
        inside = report.get(parent, {}) if parent else report
        if isinstance(inside, dict):
            inside[last] = copy.deepcopy(value)
    body = {
        "/api/oot/callback": report,
        "/api/oot/callback/batch": {"reports": [report, value]},
        "/api/oot/results": envelope() | {"untrusted": {"callback_payload": report}},
    }[path]
    token = relayed.issuer.mint(repository=L3, run_id="900", run_attempt=1)
    headers = {"Authorization": f"Bearer {token}", "X-OOT-Relay-Token": TOKEN}
    sent = json.dumps(value if alone else body)
    async with relayed.http.post(relayed.url + path, data=sent, headers=headers) as answer:
        said = await answer.json()
        assert answer.status in {200, 400, 403, 404, 409, 429}, (sent, said)
    for one in said.get("reports", ()):
        assert one["code"] in {200, 400, 403, 404, 409, 429}, (sent, one)

"""Static keys: reports of backends whose CI has no OpenID Connect."""

import json

import pytest

from tests.command import ootbot
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    return made


async def made_key(bot, repo, *more):
    code, out, err = await ootbot(bot, "keys", "add", repo, *more)
    assert code == 0, err
    return out.strip(), err


@pytest.mark.logic
async def test_a_static_key_reports_for_its_backend_until_it_is_revoked(bot, pull):
    key, warning = await made_key(bot, L2, "--note", "the old lab")
    assert warning == ""
    identifier = key.split("_")[1]
    assert (await bot.report(bot.dispatch(L2), token=key, run_id="build-7"))[0] == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert (row["downstream_repo"], row["run_id"]) == (L2, "build-7")
    (kept,) = await bot.rows("oot_key")
    assert key.split("_")[2] not in str(kept)
    assert kept["used_at"] == bot.clock.now()

    listed = (await ootbot(bot, "keys", "list"))[1]
    assert identifier in listed
    assert "the old lab" in listed
    assert key.split("_")[2] not in listed

    assert (await ootbot(bot, "keys", "revoke", identifier))[0] == 0
    status, answer = await bot.report(bot.dispatch(L2), token=key, job="after")
    assert (status, answer["error"]) == (401, "invalid_token")
    assert (await ootbot(bot, "keys", "revoke", identifier))[0] == 1


@SQLITE
async def test_a_static_key_sends_nothing_of_runs_that_were_not_dispatched_unless_the_entry_says_so(
    bot, github
):
    commit = await github.push(UPSTREAM)
    key, _ = await made_key(bot, L2)
    headers = {"Authorization": f"Bearer {key}"}
    job = {"name": "CI", "job_name": "build", "run_id": "7", "status": "completed", "conclusion": "success"}
    nightly = {"event_type": "nightly", "delivery_id": commit, "workflow": job}
    named = {"kind": "junit", "delivery_id": commit, "event_type": "nightly", "run_id": "7", "workflow": "CI"}

    async def send():
        report = await bot.request("POST", "/api/oot/callback", json=nightly, headers=headers)
        file = await bot.request(
            "POST", "/api/oot/uploads", params=named | {"job": "build"}, data=b"<testsuite/>", headers=headers
        )
        return report, file

    for status, answer in await send():
        assert (status, answer["error"]) == (403, "forbidden")
        assert "`nightly` added to" in answer["detail"]
    assert await bot.rows("oot_workflow_job") == await bot.rows("ci_upload") == []
    await bot.list_backends(f"L2: [{{repo: {L2}, events: [pull_request, nightly]}}]")
    assert [status for status, _ in await send()] == [200, 202]


@SQLITE
async def test_a_static_key_is_good_for_l2_at_most_and_for_one_backend(bot, pull):
    for repo in (L3, L4):
        key, warning = await made_key(bot, repo)
        assert "L2" in warning
        status, answer = await bot.report(bot.dispatch(repo), token=key)
        assert (status, answer["error"]) == (403, "forbidden")
        assert "static key" in answer["detail"]
    key, _ = await made_key(bot, L2)
    status, answer = await bot.report(bot.dispatch(L4), token=key)  # as L2, whose dispatch this is not
    assert (status, answer["error"]) == (403, "forbidden")
    assert await bot.rows("oot_workflow_job") == []


@SQLITE
async def test_a_static_key_reports_at_l4_where_the_entry_says_so(bot, github):
    path = bot.context.settings.data_dir / "allowlist.yml"
    path.write_text(f"L4: {{tpu: {{repo: {L4}, static_key: allowed, confirm: false}}}}")
    await bot.wait(61)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    key, _ = await made_key(bot, L4)
    assert (await bot.report(bot.dispatch(L4), token=key, run_id="build-7"))[0] == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert row["flags"] == {"no_start": True, "static_key": True}


@SQLITE
async def test_a_key_that_is_nearly_right_is_no_key(bot, pull):
    key, _ = await made_key(bot, L2)
    prefix, identifier, secret = key.split("_")
    for wrong in (
        "ootk_", "ootk__", f"ootk_{identifier}", f"ootk_{identifier}_", f"ootk_{identifier}_{secret[:-1]}",
        f"ootk_{identifier}_{secret}0", f"ootk_{'0' * 12}_{secret}", f"ootk_%_{secret}", key.upper(), "ootk_" + "x" * 5000,
        f"{prefix}_{secret}_{identifier}",
    ):  # fmt: skip
        status, answer = await bot.report(bot.dispatch(L2), token=wrong)
        assert (status, answer["error"]) == (401, "invalid_token"), wrong
    assert (await bot.rows("oot_key"))[0]["used_at"] is None
    assert (await bot.report(bot.dispatch(L2), token=key))[0] == 200


@SQLITE
async def test_strangers_are_told_to_stop_by_address_and_listed_backends_get_through(bot, pull):
    most = bot.context.settings.refused_per_min
    tokens = [bot.issuer.mint(repository="stranger/repo", run_id="1"), "no token", "ootk_no_key"]
    answers = [await bot.report(bot.dispatch(L4), token=tokens[n % 3]) for n in range(most + 5)]
    assert {status for status, _ in answers[:most]} == {401, 403}
    assert {(status, answer["error"]) for status, answer in answers[most:]} == {(429, "rate_limited")}
    for _ in range(3):  # what a listed backend gets wrong is never counted
        assert (await bot.report(bot.dispatch(L4), conclusion="green"))[0] == 400
    assert (await bot.report(bot.dispatch(L4)))[0] == 200
    bot.clock.advance(61)
    assert (await bot.report(bot.dispatch(L4), token="no token"))[0] == 401


@SQLITE
async def test_the_command_line_reports_as_the_action_does(bot, pull, tmp_path):
    key, _ = await made_key(bot, L2)
    (tmp_path / "key.txt").write_text(key)
    (tmp_path / "event.json").write_text(json.dumps({"client_payload": bot.dispatch(L2).client_payload}))
    options = ["--event", str(tmp_path / "event.json"), "--token-file", str(tmp_path / "key.txt"), "--deadline", "20",
            "--workflow-name", "lab", "--job-name", "test", "--run-id", "build-77"]  # fmt: skip
    for status in (["--status", "in_progress"], ["--status", "completed", "--conclusion", "failure"]):
        code, out, err = await ootbot(bot, "report", *status, *options)
        assert code == 0, err
        assert "took the report" in out
    (row,) = await bot.rows("oot_workflow_job")
    assert (row["workflow_name"], row["run_id"], row["conclusion"]) == ("lab", "build-77", "failure")
    code, _, err = await ootbot(bot, "report", "--status", "completed", "--conclusion", "success", *options)
    assert code == 1
    assert "409" in err

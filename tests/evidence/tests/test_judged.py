"""Whose failure is it, and how does a backend stand beside upstream? Verdicts from stored results."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.evidence.tests import verdict
from bot.evidence.tests.tables import test_state
from bot.evidence.tests.verdict import AcrossDevices
from tests.evidence.tests.reported import JOB, case, known_tests, leave, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

HORIZON = 180
OTHER_JOB = "win-vs2022-py3 / test (default, 1, 2, windows.4xlarge)"
TRUSTED = (case("test_ok"), case("test_bad", "failed"), case("test_skipped", "skipped"))
PULL = (
    case("test_ok", "failed"),
    case("test_bad", "failed"),
    case("test_skipped", "failed"),
    case("test_fresh", "failed"),
    case("test_retried", "flaky"),
)
EXPECTED = {
    "test_ok": "new",
    "test_bad": "known",
    "test_skipped": "no_baseline",
    "test_fresh": "new_test",
    "test_retried": "flaky",
}
UNTIL_COMPARED = 200


async def verdicts(bot, sha):
    names = await known_tests(bot)
    return {
        names[row["test_id"]][2]: row["verdict"]
        for row in await bot.rows("test_failure")
        if row["head_sha"] == sha
    }


async def pull_run(bot, github, *cases, name=JOB, pull=None):
    """A pull request of a fork, whose CI reports these cases; its branch is called main."""
    pull = pull or await github.open_pull(UPSTREAM)
    fork = github.state.repos.get("someone/pytorch") or github.add_repo("someone/pytorch", install=[])
    await ran(
        github, {"a.xml": xml(*cases)}, name=name, event="pull_request", head_branch="main", head_repo=fork,
        head_sha=pull.head_sha, conclusion="failure",
    )  # fmt: skip
    return pull


@pytest.mark.logic
@pytest.mark.parametrize("later", [False, True])
async def test_a_pull_request_is_compared_with_what_is_trusted(bot, github, later):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    if not later:
        await leave(github, run, job, {"a.xml": xml(*TRUSTED)})
        await bot.settle(horizon=HORIZON)
    pull = await pull_run(bot, github, *PULL)
    await bot.settle(horizon=HORIZON)
    if later:
        assert set((await verdicts(bot, pull.head_sha)).values()) == {"no_baseline", "flaky"}
        await leave(github, run, job, {"a.xml": xml(*TRUSTED)})
        await bot.settle(horizon=HORIZON)
    assert await verdicts(bot, pull.head_sha) == EXPECTED
    names = await known_tests(bot)
    proof = {
        names[row["test_id"]][2]: row["evidence"]
        for row in await bot.rows("test_failure")
        if row["head_sha"] == pull.head_sha
    }
    assert proof["test_bad"] == {"commits": [run.head_sha]}
    _, answer = await bot.get(
        f"/api/ci/runs/{UPSTREAM}/{(await bot.rows('test_job'))[-1]['run_id']}/tests?verdict=new"
    )
    assert [one["name"] for one in answer["failures"]] in (["test_ok"], [])


@SQLITE
async def test_what_passed_in_another_run_of_the_head_is_flaky_and_in_another_family_is_not(bot, github):
    pull = await pull_run(bot, github, case("test_again", "failed"), case("test_here", "failed"))
    await pull_run(bot, github, case("test_here"), name=OTHER_JOB, pull=pull)
    await bot.settle(horizon=HORIZON)
    assert await verdicts(bot, pull.head_sha) == {"test_again": "no_baseline", "test_here": "no_baseline"}
    await pull_run(bot, github, case("test_again"), pull=pull)
    await bot.settle(horizon=HORIZON)
    assert await verdicts(bot, pull.head_sha) == {"test_again": "flaky", "test_here": "no_baseline"}


@SQLITE
async def test_failing_on_unrelated_heads_is_likely_flaky_but_not_on_heads_of_one_pull_request(bot, github):
    pull = await pull_run(bot, github, case("test_a", "failed"))
    for _ in range(2):
        bot.clock.advance(60)
        await github.push_commit(pull)
        await pull_run(bot, github, case("test_a", "failed"), pull=pull)
    await bot.settle(horizon=HORIZON)
    assert await verdicts(bot, pull.head_sha) == {"test_a": "no_baseline"}
    for _ in range(2):
        bot.clock.advance(60)
        other = await pull_run(bot, github, case("test_a", "failed"))
    await bot.settle(horizon=HORIZON)
    assert await verdicts(bot, other.head_sha) == {"test_a": "likely_flaky"}


@SQLITE
async def test_a_test_in_a_flaky_state_is_likely_flaky(bot, github):
    first = await pull_run(bot, github, case("test_a", "failed"))
    await bot.settle(horizon=HORIZON)
    (failure,) = await bot.rows("test_failure")
    async with bot.store.transaction() as tx:
        await tx.run(
            sa.insert(test_state).values(
                repository_id=failure["repository_id"], test_id=failure["test_id"], env_group="linux cuda default",
                state="flaky", since=failure["at"], evidence={}, by="bot", at=failure["at"],
            )
        )  # fmt: skip
    bot.clock.advance(60)
    other = await pull_run(bot, github, case("test_a", "failed"))
    await bot.settle(horizon=HORIZON)
    assert (await verdicts(bot, first.head_sha))["test_a"] == "no_baseline"
    assert (await verdicts(bot, other.head_sha))["test_a"] == "likely_flaky"


@SQLITE
async def test_a_failure_of_a_backend_is_held_against_upstreams_own_jobs(bot, github, upload):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    cuda = case("test_add_cuda", suite="TestOpsCUDA")
    await pull_run(bot, github, cuda, case("test_mul_cuda", "failed", suite="TestOpsCUDA"), pull=pull)
    await upload(
        L3,
        xml(
            case("test_add_npu", "failed", suite="TestOpsNPU"),
            case("test_mul_npu", "failed", suite="TestOpsNPU"),
            case("test_only_npu", "failed", suite="TestOpsNPU"),
        ),
    )
    await bot.settle(horizon=HORIZON)
    ids = {row["backend"]: row["repository_id"] for row in await bot.rows("test_job")}
    names = await known_tests(bot)
    found = {
        names[row["test_id"]][2]: verdict.describe_devices(
            _across(row["evidence"]), {ids[None]: "upstream", ids[L3]: "npu"}
        )
        for row in await bot.rows("test_failure")
    }
    assert found == {
        "test_add_npu": "fails on npu, passes upstream (cuda)",
        "test_mul_npu": "fails on npu, fails upstream too (cuda)",
        "test_mul_cuda": "fails on npu, fails upstream too (cuda)",
        "test_only_npu": "fails on npu",
    }


def _across(evidence):
    return AcrossDevices(**evidence["across"])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (AcrossDevices(), ""),
        (AcrossDevices(upstream_id=1, passed=["cpu", "cuda"], failed_on=[2]), "fails on npu, passes upstream (cpu, cuda)"),
        (AcrossDevices(upstream_id=1, passed=["cpu"], failed_on=[2, 3]), "fails on npu and tpu, passes upstream (cpu)"),
        (AcrossDevices(upstream_id=1, passed=["cpu"], failed=["cuda"], failed_on=[2]), "fails on npu, fails upstream too (cuda)"),
        (AcrossDevices(upstream_id=1, failed=[""], failed_on=[2]), "fails on npu, fails upstream too"),
        (AcrossDevices(upstream_id=9, passed=["cpu"], failed_on=[2, 8]), "fails on npu"),  # 8 and 9 may not be shown
        (AcrossDevices(upstream_id=1, passed=["cpu"], failed_on=[8]), "passes upstream (cpu)"),
    ],
)  # fmt: skip
def test_what_is_said_across_backends(found, words):
    assert verdict.describe_devices(found, {1: "upstream", 2: "npu", 3: "tpu"}) == words


@pytest.fixture
async def tested(bot, github):
    """A pull request that upstream tests on cuda and a backend on its device."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    fork = github.add_repo("someone/pytorch", install=[])
    cuda = [
        *(case(f"test_{name}_cuda", suite="TestOpsCUDA") for name in ("add", "mul", "div", "pow")),
        case("test_sub_cuda", "skipped", suite="TestOpsCUDA"),
        case("test_other", file="other.py", suite="TestOther"),
    ]
    await ran(github, {"a.xml": xml(*cuda)}, event="pull_request", head_repo=fork, head_sha=pull.head_sha)
    run = await github.start_run(L3, event="repository_dispatch")
    job = await github.start_job(run, JOB.replace("cuda", "npu"))
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id=str(run.id))
    npu = [
        case("test_add_npu", suite="TestOpsNPU"),
        case("test_mul_npu", "failed", suite="TestOpsNPU"),
        case("test_div_npu", "skipped", suite="TestOpsNPU"),
        case("test_only_npu", "failed", suite="TestOpsNPU"),
    ]
    await leave(github, run, job, {"a.xml": xml(*npu)}, conclusion="failure")
    await bot.settle(horizon=UNTIL_COMPARED)
    return pull


@pytest.mark.logic
async def test_a_backend_beside_upstream(bot, tested):
    status, answer = await bot.get(f"/api/ci/parity/{L3}")
    assert status == 200
    assert (answer["sha"], answer["device"], answer["only_theirs"]) == (tested.head_sha, "cuda", 1)
    assert answer["whole"] == {
        "file": "", "tests": 5, "passed": 1, "failed": 1, "skipped": 1, "missing": 2, "conformance": 0.2,
    }  # fmt: skip
    assert [(one["file"], one["tests"], one["passed"]) for one in answer["files"]] == [
        ("test_ops.py", 4, 1),
        ("other.py", 1, 0),
    ]
    status, page = await bot.get(f"/oot/{L3}/tests")
    assert status == 200
    assert "20 %" in page
    assert "fails on npu, passes upstream (cuda)" in page
    assert "test_mul_npu" in page
    assert "test_only_npu" not in page  # upstream does not have it
    assert (await bot.get(f"/api/ci/parity/{L3}?sha={tested.head_sha[:10]}"))[0] == 200
    assert (await bot.get(f"/api/ci/parity/{L3}?device=rocm"))[0] == 404
    assert (await bot.get(f"/api/ci/parity/{L3}?sha={'c' * 40}"))[1]["error"] == "no_comparison"
    assert (await bot.get("/api/ci/parity/org/nobody"))[0] == 404


@SQLITE
async def test_of_a_backend_that_has_not_run_yet_the_page_says_so(bot):
    status, page = await bot.get(f"/oot/{L3}/tests")
    assert status == 200
    assert "No commit is known on which" in page
    assert (await bot.get(f"/api/ci/parity/{L3}"))[1]["error"] == "no_comparison"


@SQLITE
async def test_of_a_private_backend_there_is_nothing(bot, github, tested):
    about = {
        "id": github.state.repo(L3).id,
        "full_name": L3,
        "private": True,
        "updated_at": "2030-01-01T00:00:00Z",
    }
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.settle()
    for path in (f"/api/ci/parity/{L3}", f"/oot/{L3}/tests"):
        status, shown = await bot.get(path)
        assert status == 404
        assert "test_mul" not in str(shown)

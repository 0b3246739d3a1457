"""A backend's tests held against upstream's own, on one commit: in numbers, by file, and what fails there only."""

from __future__ import annotations

import pytest

from tests.evidence.tests.reported import JOB, case, leave, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

HORIZON = 200


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
    await bot.settle(horizon=HORIZON)
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

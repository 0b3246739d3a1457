"""From an artifact to rows, masked and in blocks; flags and properties; a repository's tests in lists."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.evidence.tests.parse import block, texts
from bot.evidence.tests.parse.block import NO_TIME, Code
from tests.evidence.tests.reported import JOB, case, jsonl, known_tests, leave, outcomes, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

HORIZON = 120  # seconds in which a run's artifacts are listed, fetched and merged
LISTS = f"/api/ci/tests/{UPSTREAM}"
TOKEN = "glpat-" + "TOPSECRET" * 3
FILE = "u.report.jsonl"
TEST = ("test_ops.py", "TestOps", "test_add")


@pytest.mark.logic
async def test_reports_of_a_finished_run_become_rows(bot, github):
    report = xml(
        case("test_add"),
        case("test_mul", "failed", message="3 != 4"),
        case("test_div", "flaky", time="1.5"),
        case("test_new", "skipped"),
    )
    run, job = await ran(github, {"a.xml": report, "broken.xml": b"<testsuite><testcase"})
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["run_id"], row["job_id"], row["head_sha"]) == (run.id, job.id, run.head_sha)
    counts = {name: row[name] for name in ("tests", "passed", "failed", "skipped", "flaky", "files")}
    assert counts == {"tests": 4, "passed": 2, "failed": 1, "skipped": 1, "flaky": 1, "files": 1}
    assert (row["family"], row["base_name"], row["config"], row["shard"], row["shards"]) == (
        "CI / linux-jammy-py3.10-cuda / test (default)", "linux-jammy-py3.10-cuda", "default", 1, 2,
    )  # fmt: skip
    assert row["unreadable"] == [{"member": "broken.xml", "reason": "truncated at line 1"}]
    assert await outcomes(bot) == [
        ("test_add", "passed", 1, 250),
        ("test_div", "passed", 2, 1500),
        ("test_mul", "failed", 1, 250),
        ("test_new", "skipped", 1, 250),
    ]
    names = await known_tests(bot)
    failures = {names[one["test_id"]][2]: one for one in await bot.rows("test_failure")}
    assert {
        name: (one["flaky"], one["attempts"], one["failed_attempts"]) for name, one in failures.items()
    } == {
        "test_mul": (False, 1, 1),
        "test_div": (True, 2, 1),
    }
    assert (failures["test_mul"]["message"], failures["test_mul"]["stack"]) == ("3 != 4", "line 1\nline 2")
    (env,) = await bot.rows("test_env")
    assert (env["os"], env["accelerator"], env["python"], env["env_group"]) == (
        "linux", "cuda", "3.10", "linux cuda default",
    )  # fmt: skip
    (summary,) = await bot.rows("test_summary") if row["trusted"] else (None,)
    assert summary is None or (summary["tests"], summary["failures"], summary["flaky"]) == (4, 1, 1)


@SQLITE
async def test_a_backend_on_another_ci_uploads_a_report(bot, github, upload):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    payload = await upload(L3, xml(case("test_add"), case("test_old", file="other.py")))
    npu = jsonl(("test_ops.py", "TestOps", "test_add_npu", "failed"), accelerator="npu")
    await upload(L3, npu, kind="runreport")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["backend"], row["upstream_repo"], row["trusted"]) == (L3, UPSTREAM, False)
    assert row["upstream_sha"] == payload["payload"]["pull_request"]["head"]["sha"]
    assert max(row["run_id"], row["job_id"]) < 0
    # a run report knows test_ops.py: JUnit says nothing of it
    assert await outcomes(bot) == [("test_add_npu", "failed", 1, 50), ("test_old", "passed", 1, 250)]
    assert [env["accelerator"] for env in await bot.rows("test_env")] == ["npu"]


@SQLITE
async def test_a_stranger_cannot_fill_the_list_of_tests(bot, github):
    pull = await github.open_pull(UPSTREAM)
    names = "".join(f'<testcase classname="c" name="t{number}"/>' for number in range(50_001))
    await ran(github, {"a.xml": xml(names)}, event="pull_request", head_sha=pull.head_sha, head_branch="main")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["tests"], row["passed"]) == (50_001, 50_001)
    assert row["unreadable"] == [
        {"member": "all reports", "reason": "over 50,000 tests that no trusted run had"}
    ]
    assert await bot.rows("test") == []


@pytest.fixture
async def runs(bot, github):
    """Three pushes with a test that fails each time, one that fails once, a flaky one, a slow one and a good one."""
    for number in range(3):
        files = {
            "a.xml": xml(
                case("test_add", "failed", message="3 != 4"),
                case("test_mul", "failed" if number == 1 else "passed"),
                case("test_div", "flaky"),
                case("test_slow", time="61.5"),
                case("test_100%", file="other.py", suite="TestOther", outcome="skipped"),
            )
        }
        await ran(github, files, conclusion="failure")
        await bot.settle(horizon=HORIZON)
        bot.clock.advance(3600)
        await github.push(UPSTREAM)


async def names(bot, query=""):
    status, answer = await bot.get(f"{LISTS}?{query}")
    assert status == 200, answer
    return [one["name"] for one in answer["tests"]]


async def test_lists_have_an_order_and_go_on_page_by_page(bot, runs):
    assert await names(bot) == ["test_add", "test_mul"]
    assert await names(bot, "sort=flaky") == ["test_div"]
    assert await names(bot, "sort=recent") == ["test_add", "test_div", "test_mul"]
    assert await names(bot, "sort=slow") == ["test_slow"]
    assert sorted(await names(bot, "sort=name")) == [
        "test_100%",
        "test_add",
        "test_div",
        "test_mul",
        "test_slow",
    ]
    _, answer = await bot.get(f"{LISTS}?limit=1")
    (first,) = answer["tests"]
    assert (first["failures"], first["flaky"], first["commits"], first["suite"]) == (3, 0, 3, "TestOps")
    for sort in ("failures", "flaky", "recent", "slow", "name"):
        whole, found, before = await names(bot, f"sort={sort}"), [], ""
        while True:
            _, answer = await bot.get(f"{LISTS}?sort={sort}&limit=1{before}")
            found += [one["name"] for one in answer["tests"]]
            if answer["next"] is None:
                break
            before = f"&before={answer['next']}"
        assert found == whole


@pytest.mark.logic
async def test_lists_are_narrowed(bot, runs):
    for query, found in (
        ("q=mul", ["test_mul"]),
        ("q=MUL+testops", ["test_mul"]),
        ("q=100%25&sort=name", ["test_100%"]),
        ("q=%25", []),
        ("file=other.py&sort=name", ["test_100%"]),
        ("suite=TestOther", []),
        ("state=broken", ["test_add"]),
        ("state=quarantined", []),
        ("env=linux+cuda+default", ["test_add", "test_mul"]),
        ("env=mars", []),
        ("days=400", ["test_add", "test_mul"]),
    ):
        assert await names(bot, query) == found, query
    for query, status in (
        ("sort=best", 400),
        ("before=x", 400),
        ("days=0", 400),
        ("state=odd", 400),
        ("backend=org/nobody", 404),
    ):
        assert (await bot.get(f"{LISTS}?{query}"))[0] == status, query


@pytest.mark.logic
async def test_tests_that_trusted_runs_no_longer_have_are_gone(bot, github, runs):
    assert await names(bot, "state=gone") == []
    bot.clock.advance(10 * 86_400)
    assert await names(bot, "state=gone") == []  # no run at all: that says nothing
    await ran(github, {"a.xml": xml(case("test_add"))})
    await bot.settle(horizon=HORIZON)
    gone = ["test_100%", "test_div", "test_mul", "test_slow"]
    assert sorted(await names(bot, "state=gone")) == gone
    assert await names(bot, "state=gone&q=mul&sort=failures") == ["test_mul"]
    assert await names(bot, "state=gone&days=30") == []


@SQLITE
async def test_the_pages_show_the_same(bot, runs):
    status, page = await bot.get(f"/{UPSTREAM}/tests?q=test_m")
    assert status == 200
    assert "test_mul" in page
    assert "test_add" not in page
    assert 'value="test_m"' in page
    for sort in ("flaky", "recent", "slow", "name"):
        assert (await bot.get(f"/{UPSTREAM}/tests?sort={sort}"))[0] == 200
    status, page = await bot.get(f"/{UPSTREAM}/tests?q=nothing-of-that-name")
    assert "No test of that kind failed" in page
    status, page = await bot.get(f"/{UPSTREAM}/tests/file/test_ops.py")
    assert status == 200
    assert "4 tests in 1 suite" in page
    assert "test_mul" in page
    assert (await bot.get(f"/{UPSTREAM}/tests/file/none.py"))[0] == 404
    status, page = await bot.get(f"/{UPSTREAM}/flaky")
    assert status == 200
    assert "test_div" in page
    assert "test_add" not in page


@pytest.mark.logic
async def test_lists_say_how_often_tests_ran_in_trusted_runs_and_how_long_they_took(bot, github, runs):
    fork = github.add_repo("someone/pytorch", install=[])
    files = {"a.xml": xml(case("test_mul", time="9"))}
    await ran(github, files, event="pull_request", head_repo=fork)
    await bot.settle(horizon=HORIZON)
    _, answer = await bot.get(f"{LISTS}?sort=name")
    by_name = {one["name"]: one for one in answer["tests"]}
    wanted = ("runs", "passed", "skipped", "average_ms", "pass_rate")
    assert [by_name["test_mul"][name] for name in wanted] == [3, 2, 0, 250, 2 / 3]
    assert [by_name["test_100%"][name] for name in wanted] == [3, 0, 3, None, None]
    assert [by_name["test_slow"][name] for name in wanted] == [3, 3, 0, 61_500, 1.0]
    assert answer["counted_days"] == 7
    _, elsewhere = await bot.get(f"{LISTS}?sort=name&env=nowhere")
    assert {one["runs"] for one in elsewhere["tests"]} <= {0}
    _, page = await bot.get(f"/{UPSTREAM}/tests?q=mul")
    assert "66.7 %" in page
    assert "sort=flaky" in page


@pytest.mark.logic
async def test_json_of_tests_is_not_sent_again_to_who_has_it(bot, runs):
    async with bot.http.get(bot.url + LISTS) as first:
        tag = first.headers["ETag"]
    async with bot.http.get(bot.url + LISTS, headers={"If-None-Match": tag}) as again:
        assert (again.status, await again.read()) == (304, b"")
    async with bot.http.get(f"{bot.url}{LISTS}?days=0", headers={"If-None-Match": tag}) as refused:
        assert refused.status == 400
        assert "ETag" not in refused.headers


@pytest.mark.parametrize("kind", ["xml", "jsonl"])
@SQLITE
async def test_no_row_has_a_secret_of_a_report(bot, github, kind):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    report = xml(case("test_add", "failed", message=f"no access with {TOKEN}"))
    if kind == "jsonl":
        line = jsonl(("test_ops.py", "TestOps", "test_add", "failed"), job_id=job.id)
        report = line.replace(
            b'"rerun_number"', f'"outcome_summary": "no access with {TOKEN}", "rerun_number"'.encode()
        )
    github.add_artifact(run, f"wheel with {TOKEN}", b"x")
    await leave(github, run, job, {f"a.{kind}": report}, conclusion="failure")
    await bot.settle(horizon=3600)
    failures = await bot.rows("test_failure")
    assert "no access with ***" in str(failures)
    assert "wheel with ***" in str(await bot.rows("ci_artifact"))
    for table in ("test_failure", "ci_artifact"):
        assert "TOPSECRET" not in str(await bot.rows(table))


def made(count, seed=1):
    chance = random.Random(seed)
    ids = chance.sample(range(1, 4 * count), count)
    return [
        (one, block.code_of(Code.PASSED if chance.random() < 0.99 else Code.FAILED, 1), int(chance.expovariate(0.01)))
        for one in ids
    ]  # fmt: skip


def test_what_was_encoded_comes_back_in_the_order_of_the_tests():
    cases = [
        (7, block.code_of(Code.FAILED, 40, flaky=True), NO_TIME),
        (3, block.code_of(Code.PASSED, 1), 12),
        (7, 20, 5),
    ]
    encoded = block.encode(cases)
    assert encoded == block.encode(cases[::-1])
    assert list(block.cases(encoded)) == sorted(cases)
    decoded = block.decode(encoded)
    assert [tuple(one) for one in decoded.find(7)] == [
        (Code.SKIPPED, 1, False, 5),
        (Code.FAILED, 7, True, None),
    ]
    assert decoded.find(4) == decoded.find(8) == []
    assert list(block.cases(block.encode([]))) == list(block.cases(None)) == []


def test_a_case_takes_three_bytes():
    cases = made(50_000)
    assert len(block.encode(cases)) / len(cases) < 3


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 20, -1])
def test_a_damaged_block_is_named(cut):
    with pytest.raises(block.Damaged):
        block.decode(block.encode(made(100))[:cut])


@pytest.mark.parametrize("change", [b"\x02", b"\x01\xff\xff\xff\x7f"])
def test_another_format_or_a_bomb_is_refused(change):
    encoded = block.encode(made(100))
    with pytest.raises(block.Damaged):
        block.decode(change + encoded[len(change) :])


@pytest.mark.parametrize(
    ("suite", "name", "other_suite", "other_name"),
    [
        ("TestOpsCUDA", "test_add_cuda_float32", "TestOpsNPU", "test_add_npu_float32"),
        ("TestOpsCPU", "test_add_cpu", "TestOpsPRIVATEUSE1", "test_add_privateuse1"),
        ("test_ops", "test_add[cuda-3]", "test_ops", "test_add[mps-3]"),
        ("NPUTest", "testCudaGraph", "XPUTest", "testNpuGraph"),
    ],
)
def test_a_test_has_one_canonical_name_on_all_devices(suite, name, other_suite, other_name):
    assert texts.canonical("a.py", suite, name) == texts.canonical("a.py", other_suite, other_name)


@pytest.mark.parametrize("name", ["test_cpuset", "test_meta2data", "test_scuda", "test_xpux"])
def test_a_device_within_a_word_is_none(name):
    assert texts.without_device(name, texts.DEVICES) == name


def with_words(content, head, run):
    """A report whose first line and runs have further fields."""
    lines = [json.loads(line) for line in content.splitlines()]
    whole = [line | (head if line["type"] == "report" else run) for line in lines]
    return "\n".join(map(json.dumps, whole)).encode() + b"\n"


async def failures(bot):
    """The only failing test: its failures as JSON, and its page."""
    _, listed = await bot.get(f"/api/ci/tests/{UPSTREAM}")
    (test,) = (one["test"] for one in listed["tests"])
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}/{test}")
    _, page = await bot.get(f"/{UPSTREAM}/test/{test}")
    return answer["failures"], page


@pytest.mark.logic
async def test_flags_and_properties_stand_beside_the_failure(bot, github):
    head = {"flags": {"USE_NPU": "1", "HF_TOKEN": "hunter2"}, "properties": {"pytest": "9.1", "shards": 3}}
    run = {"properties": {"dtype": "<b>bf16", "stack": "line 1", "sizes": [1, 2]}}
    await ran(github, {FILE: with_words(jsonl((*TEST, "failed")), head, run)}, conclusion="failure")
    await bot.settle(horizon=120)
    (one,), page = await failures(bot)
    assert one["flags"] == {"USE_NPU": "1", "HF_TOKEN": "(not kept)"}
    assert one["report_properties"] == {"pytest": "9.1", "shards": "3"}
    assert one["properties"] == {"dtype": "<b>bf16", "sizes": "[1,2]"}
    assert "USE_NPU=1" in page
    assert "dtype=&lt;b&gt;bf16" in page
    assert "hunter2" not in page


@SQLITE
async def test_of_many_and_long_ones_little_is_kept(bot, github):
    many = {f"name {number:04}" + "n" * 200: "é" * 500 for number in range(100)} | {"\0": "a\0b"}
    content = with_words(jsonl((*TEST, "failed")), {"flags": many, "properties": None}, {"properties": many})
    await ran(github, {FILE: content}, conclusion="failure")
    await bot.settle(horizon=120)
    ((one,), _) = await failures(bot)
    assert (len(one["flags"]), len(one["properties"]), one["report_properties"]) == (40, 20, {})
    assert max(len(name.encode()) for name in one["flags"]) == 100
    assert {len(value.encode()) for value in one["flags"].values()} <= {5, 200}


@SQLITE
async def test_a_test_at_its_time_limit_timed_out_and_counts_as_failed(bot, github):
    await ran(github, {FILE: jsonl((*TEST, "timed_out"))}, conclusion="failure")
    await bot.settle(horizon=120)
    (one,), page = await failures(bot)
    assert (one["outcome"], one["failed_attempts"]) == ("timed_out", 1)
    assert "timed out" in page
    (job,) = await bot.rows("test_job")
    assert (job["tests"], job["failed"], job["passed"]) == (1, 1, 0)
    assert [row["failures"] for row in await bot.rows("test_summary")] == [1]


@pytest.mark.parametrize(
    ("attributes", "child", "outcome"),
    [
        ("", '<failure type="test timeout"/>', "timed_out"),
        ("", '<failure message="Failed: Timeout (&gt;1.0s) from pytest-timeout."/>', "timed_out"),
        ("", '<failure message="Failed: Timeout &gt;1.0s"/>', "timed_out"),
        ('status="fail"', '<failure message="Timeout"/>', "timed_out"),
        ("", '<error type="org.junit.runners.model.TestTimedOutException" message="x"/>', "timed_out"),
        (
            "",
            '<error type="java.util.concurrent.TimeoutException" message="slow() timed out after 5 seconds"/>',
            "timed_out",
        ),
        ("", '<failure>thrown: "Exceeded timeout of 5000 ms for a test.</failure>', "timed_out"),
        ("", '<failure message="Timeout of 2000ms exceeded. For async tests"/>', "timed_out"),
        ('status="timeout"', "", "timed_out"),
        ("", '<error type="java.util.concurrent.TimeoutException" message="queue was empty"/>', "error"),
        ("", '<failure message="Timeout was not raised"/>', "failed"),
        ("", '<failure message="AssertionError: Timeout &gt;1.0s"/>', "failed"),
    ],
)
def test_junit_says_what_timed_out(tmp_path, attributes, child, outcome):
    report = tmp_path / "a.xml"
    report.write_text(f"<testsuite><testcase name='t' {attributes}>{child}</testcase></testsuite>")
    read = json.loads(CliRunner().invoke(main, ["tests", "read", str(report), "--json"]).output)
    assert read["cases"][0]["outcome"] == outcome
    assert read["counts"]["errors" if outcome == "error" else "failed"] == 1

"""A bot with a month of results of a dozen backends, open pull requests and failures of every kind."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import sqlalchemy as sa

from bot.core.json_fields import iso_time
from bot.demo import test_reports, trunk_history, usage_logs
from bot.demo.participants import FFT, MATMUL, SCATTER
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.parse.contract import ParserInput
from bot.evidence.collect.receivers import Fetched
from bot.evidence.disabled.feature import DisabledSettings
from bot.evidence.usage import store_usage
from bot.evidence.usage.parse import parse_usage
from bot.oot.culprits import rows
from bot.oot.culprits.start import WantedSearch, start_search
from bot.oot.culprits.tables import bisect
from bot.oot.results import jobs
from bot.oot.results.tables import oot_dispatch
from tests.harness import L2, L3, L4, UPSTREAM
from tests.sums import count_changed

DAY = 86_400_000
OF_FEATURES = {DisabledSettings: DisabledSettings(ci_disable="suggest")}
BACKENDS = {  # name -> level, chance of success, seconds a job takes
    L4: (4, 0.97, 1_900), "org/gpu-next": (4, 0.9, 2_700), L3: (3, 0.93, 900), "vela/riscv-vector": (3, 0.75, 5_400),
    "org/fpga-sim": (3, 0.99, 700), L2: (2, 0.86, 300), "quartz/photon": (2, 0.55, 12_000),
    "lab/analog-with-a-rather-long-name-indeed": (2, 0.98, 100), "org/optical": (2, 0.0, 600),
}  # fmt: skip
ALLOWLIST = f"""
L1: [watch/l1, watch/other]
L2: [{{{L2}: "alice, bob"}}, lab/analog-with-a-rather-long-name-indeed, org/optical, quiet/never-reported]
L3:
  npu: {{{L3}: [carol]}}
  riscv: {{vela/riscv-vector: [erin, frank]}}
  fpga: {{org/fpga-sim: []}}
L4:
  tpu: {{{L4}: [dave]}}
  gpu: {{org/gpu-next: [grace]}}
"""
JOBS = ("build", "test (default, 1, 3)", "test (default, 2, 3)", "test (default, 3, 3)", "benchmark")
UNINSTALLED = "org/optical"
TESTS = ("test_add", "test_matmul_small", "test_scatter_empty_index", "test_conv_dilated")


async def tell(bot, github):
    """Fill the bot."""
    chance = random.Random(7)
    for name in sorted({*BACKENDS, "quiet/never-reported", "watch/other"} - {L2, L3, L4, UNINSTALLED}):
        github.add_repo(name)
    pulls = []
    for title, author in (
        ("Multiply small matrices without a copy", "octocat"), ("Reject empty indices in scatter_add", "hubot"),
        ("A title that is so long that it has to be shortened somewhere, since nobody reads titles of this length", "a-b"),
    ):  # fmt: skip
        pulls.append(await github.open_pull(UPSTREAM, title=title, author=author))
    await bot.settle()
    await _trunk(bot, github)
    await _past(bot, chance)
    await _live(bot, github)
    await _disabled(bot, github)
    await tell_usage(bot, github)
    await tell_tests(bot, github)
    await tell_searches(bot)
    await count_changed(bot.context)
    async with bot.store.transaction() as tx:
        await tx.conn.exec_driver_sql(
            "UPDATE task SET state='dead', error='GitHub refused: 422 Validation Failed', finished_at=due_at "
            "WHERE kind='publish' AND id IN (SELECT id FROM task WHERE kind='publish' ORDER BY id LIMIT 2)"
        )
    return pulls


async def _trunk(bot, github):
    """A month of upstream's own CI, and a backend's nightly runs on its commits."""
    past = trunk_history.make_history(github, UPSTREAM, now=bot.clock.now())
    await github.webhooks.tell(past.events)
    await bot.settle()
    rows = []
    for sha, passed in past.backend_results.items():
        row = jobs.BLANK | {
            "status": "completed", "conclusion": "success" if passed else "failure", "downstream_repo": L3,
            "upstream_repo": UPSTREAM, "head_sha": sha, "delivery_id": sha, "workflow_name": "Nightly",
            "job_name": "test (vector)", "run_id": sha[:12], "run_attempt": 1, "source": "callback", "flags": {},
            "started_at": bot.clock.now(), "completed_at": bot.clock.now(), "downstream_repo_level": 3,
            "event_type": "nightly", "received_at": bot.clock.now(), "updated_at": bot.clock.now(),
        }  # fmt: skip
        rows.append(row | {"job_key": jobs.job_key(row)})
    async with bot.store.transaction() as tx:
        await jobs.add_jobs(tx, {row["job_key"]: row for row in rows})
    for _ in range(3):
        await count_changed(bot.context)


async def _disabled(bot, github):
    """Issues that disable tests and jobs, and some that do not."""
    several = "\n".join(f"test_case_{number} (__main__.TestFusion): npu, linux" for number in range(4))
    for title, body, by in (
        ("DISABLED test_scatter_empty_index (__main__.TestScatter)", "Platforms: linux, npu, amiga", "alice"),
        (
            "DISABLED MULTIPLE fusion tests",
            f"disable the following tests:\n```\n{several}\nnonsense\n```",
            "alice",
        ),
        ("DISABLED test_conv_dilated (__main__.TestConv)", "", "alice"),
        (
            "DISABLED pull / linux-jammy-py3.12-with-a-long-name / test (distributed, 1, 3, linux.large)",
            "",
            "alice",
        ),
        ("UNSTABLE periodic / win-vs2022 / test (default)", "", "alice"),
        ("DISABLED test_add (__main__.TestMath)", "", "mallory"),
        ("DISABLED test_without_class", "", "alice"),
        ("DISABLED test_gpu (__main__.TestGpu)", "platforms: amiga", "alice"),
    ):
        await github.open_issue(UPSTREAM, title, body, by=by)
    await bot.settle(horizon=30)


async def _live(bot, github):
    """One more pull request, of which everything there is can be seen, through the front door."""
    pull = await github.open_pull(
        UPSTREAM, title="scatter_add: look at the indices before the kernel starts", author="hubot"
    )
    for _ in range(2):
        await bot.settle()
        bot.clock.advance(600)
        await github.push_commit(pull)
    await bot.settle()
    bot.clock.advance(60)
    failing = [{"name": name, "classname": "ops", "file": "tests/ops.py", "line": 12, "message": "AssertionError: 3 != 4",
                "stacktrace": 'Traceback (most recent call last):\n  File "ops.py", line 12, in test\n'} for name in TESTS[:2]]  # fmt: skip

    async def report(backend, job, **said):
        assert (await bot.report(bot.dispatch(backend), job=job, **{"name": "Device CI"} | said))[0] == 200

    for backend, jobs_of in (
        (L4, JOBS[:3]),
        (L3, JOBS[:1]),
        ("org/gpu-next", JOBS[:2]),
        ("vela/riscv-vector", JOBS[:1]),
    ):
        for job in jobs_of:
            await report(backend, job, status="in_progress")
    bot.clock.advance(1_900)
    await report(L4, "build", environment={"driver": "24.1", "firmware": "9.3.1"})
    tests = {"passed": 8430, "failed": 2, "skipped": 20}
    await report(L4, JOBS[1], conclusion="failure", failed_tests=failing, test_results=tests)
    await report("org/gpu-next", "build")
    await report(L3, "build", test_results={"passed": 3140, "failed": 0, "skipped": 2})
    await report("vela/riscv-vector", "build", conclusion="failure")
    await report(L2, "smoke", conclusion="timed_out")
    await report("lab/analog-with-a-rather-long-name-indeed", "build")
    await bot.settle()
    sha = pull.head_sha
    for number, (name, conclusion) in enumerate(
        (("lint", "success"), ("linux-build", "success"), ("docs", "failure"))
    ):
        repository = {"id": bot.github.state.repo(UPSTREAM).id, "full_name": UPSTREAM}
        job = {"id": 500 + number, "run_id": 77, "run_attempt": 1, "name": name, "workflow_name": "pull", "head_sha": sha,
               "status": "completed", "conclusion": conclusion, "html_url": "https://github.com/x/y/actions/runs/77",
               "started_at": "2026-09-01T00:00:00Z", "completed_at": "2026-09-01T00:12:00Z"}  # fmt: skip
        await bot.send("workflow_job", {"action": "completed", "repository": repository, "workflow_job": job})
    await bot.settle()


async def _past(bot, chance):
    """A month of rows, as reports would have left them."""
    now = bot.clock.now()
    rows = []
    for repo, (level, success, seconds) in BACKENDS.items():
        for age in range(30, -1, -1):
            if repo == "org/fpga-sim" and age < 3:
                continue  # silent
            good = 0.3 if repo == "org/gpu-next" and age < 1 else success
            for number in range(3):
                rows += _run(
                    chance, repo, level, good, seconds, now - age * DAY - number * 3_600_000 - 60_000, number
                )
    for start in range(0, len(rows), 300):
        async with bot.store.transaction() as tx:
            await jobs.add_jobs(tx, {row["job_key"]: row for row in rows[start : start + 300]})


def _run(chance, repo, level, success, seconds, at, number):
    event = ("pull_request", "pull_request", "push" if at // DAY % 2 else "nightly")[number]
    pull = chance.randint(1, 3) if event == "pull_request" else None
    run_id, sha = f"{at}{chance.randint(0, 9)}", f"{chance.getrandbits(160):040x}"
    for job in JOBS[: 5 if level == 4 else 2]:
        passed = chance.random() < success
        failed = [] if passed else [{"name": name} for name in chance.sample(TESTS, 2)]
        row = jobs.BLANK | {
            "status": "completed", "conclusion": "success" if passed else chance.choice(["failure", "failure", "timed_out"]),
            "downstream_repo": repo, "upstream_repo": UPSTREAM, "pr_number": pull, "head_sha": sha, "delivery_id": sha[:12],
            "workflow_name": "Device CI", "job_name": job, "run_id": run_id, "run_attempt": 1, "source": "callback",
            "queue_time": chance.uniform(10, 400), "execution_time": seconds * chance.uniform(0.7, 1.6), "flags": {},
            "started_at": at, "completed_at": at + 60_000, "downstream_repo_level": level, "event_type": event,
            "failed_tests": len(failed) or None, "failed_tests_json": failed or None, "received_at": at, "updated_at": at,
        }  # fmt: skip
        yield row | {"job_key": jobs.job_key(row)}


# A month of jobs whose machines were watched, upstream's and a backend's.


MEASURED_JOBS = (
    "linux-npu / test (default, 1, 2, linux.npu.2)", "linux-npu / test (default, 2, 2, linux.npu.2)",
    "linux-npu / test (distributed, linux.npu.8)", "linux-jammy / build (linux.4xlarge)",
)  # fmt: skip
FIRST = 9_000_000_000  # job ids
STEPS = (
    (0, 60, "Set up job"),
    (60, 180, "Install dependencies"),
    (180, 6_900, "Run tests"),
    (6_900, 7_190, "Upload"),
)
MEASURED, MEASURED_RUN = FIRST + 1, 8_000_000_000
UNMEASURED, REFUSED = FIRST + 500_000, FIRST + 600_000


async def tell_usage(bot, github):
    now = bot.clock.now()
    read = [
        await _read(
            bot, number, usage_logs.usage_log(name, start_at=now // 1000 - 7_800, seed=number, peak=peak)
        )
        for number, (name, peak) in enumerate(zip(MEASURED_JOBS, (97.4, 60.0, 71.0, 55.0), strict=True))
    ]
    told = []
    for age in range(30):
        for number, name in enumerate(MEASURED_JOBS):
            told.append((age, number, FIRST + 1 + len(told), L4 if number == 2 else UPSTREAM))
            await _measured_job(
                bot, github, told[-1][3], told[-1][2], name, MEASURED_RUN + age, now - age * DAY - 600_000
            )
    await bot.settle()
    for age, number, job, repo in told:
        await _stored(
            bot, github, repo, job, MEASURED_RUN + age, read[number], trusted=age % 3 > 0 or number == 3
        )
    await _measured_job(bot, github, UPSTREAM, UNMEASURED, "docs", MEASURED_RUN, now)
    await _measured_job(bot, github, UPSTREAM, REFUSED, "lint", MEASURED_RUN, now)
    await bot.settle()
    refused = await _read(bot, 9, b'{"level": "metadata"}\n')
    await _stored(bot, github, UPSTREAM, REFUSED, MEASURED_RUN, refused, trusted=False)


async def _read(bot, number, log):
    """Read a log as the parser child does; returns its answer and its blob's key."""
    with tempfile.TemporaryDirectory() as folder:
        path, series = Path(folder) / "log", Path(folder) / "series"
        path.write_bytes(log)
        answer = parse_usage.parse_log(ParserInput(path=path, blob=series, members=(), options=None))
        key = f"util/{number}" if series.exists() else None
        if key:
            await bot.context.resource(BLOBS).put(key, series.read_bytes())
    return answer, key


async def _measured_job(bot, github, repo, identifier, name, run, ended):
    began = ended - 7_200_000
    steps = [
        {"name": words, "number": at, "status": "completed", "conclusion": "success",
         "started_at": iso_time(began + start * 1000), "completed_at": iso_time(began + end * 1000)}
        for at, (start, end, words) in enumerate(STEPS, 1)
    ]  # fmt: skip
    job = {
        "id": identifier, "run_id": run, "run_attempt": 1, "name": name, "workflow_name": "pull", "head_sha": "ab" * 20,
        "status": "completed", "conclusion": "success", "html_url": "https://github.com/x/y/actions/runs/77",
        "labels": [name.rpartition(", ")[2].strip(")") if "(" in name else "ubuntu-latest"], "steps": steps,
        "created_at": iso_time(began - 60_000), "started_at": iso_time(began), "completed_at": iso_time(ended),
    }  # fmt: skip
    repository = {"id": github.state.repo(repo).id, "full_name": repo, "private": False}
    await bot.send("workflow_job", {"action": "completed", "repository": repository, "workflow_job": job})


async def _stored(bot, github, repo, job, run, read, *, trusted):
    fetched = Fetched(
        repository_id=github.state.repo(repo).id, repo=repo, source="artifact", kind="usage", object_id=job, run_id=run,
        run_attempt=1, job_id=job, name=f"usage-log_{job}", head_sha="ab" * 20, trusted=trusted, private=False, size=0,
        sha256="",
    )  # fmt: skip
    async with bot.context.store.transaction() as tx:
        await store_usage.store_log(tx, bot.context, fetched, *read)


# A search for the commit that broke a backend at night, two rounds in; and one that is over.


async def tell_searches(bot):
    """Begin a search and answer its first rounds; a second one has ended with the culprit."""
    waiting = sa.and_(oot_dispatch.c.backend_key == L3, oot_dispatch.c.heard_at.is_(None))
    async with bot.store.transaction() as tx:  # or the search would yield to them
        ids = list((await tx.run(sa.select(oot_dispatch.c.id).where(waiting))).scalars())
        await tx.run(sa.update(oot_dispatch).where(waiting).values(heard_at=tx.now))
        wanted = WantedSearch(
            repo=UPSTREAM,
            backend="npu",
            by="alice",
            reason="asked for in #12",
            what="Nightly / test (vector)",
        )
        started = await start_search(tx, bot.context.settings, wanted)
    lines = [row for row in await bot.rows("branch_commit") if row["title"].endswith(")")]
    shas = [row["sha"] for row in sorted(lines, key=lambda row: row["at"])]
    culprit = shas[trunk_history.BACKEND_BROKE]
    answered = 0
    for _ in range(2):
        await bot.settle(horizon=5)
        asked = [one for one in bot.github.dispatches if "bisect" in one.client_payload][answered:]
        answered += len(asked)
        for number, one in enumerate(asked):
            bad = shas.index(one.client_payload["payload"]["after"]) >= shas.index(culprit)
            for status in ("in_progress", "completed"):
                await bot.report(
                    one, status=status, conclusion="failure" if bad else "success", name=trunk_history.NIGHTLY,
                    job=trunk_history.NIGHTLY_JOB, run_id=f"search-{answered}-{number}",
                )  # fmt: skip
    await bot.settle(horizon=5)
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(oot_dispatch).where(oot_dispatch.c.id.in_(ids)).values(heard_at=None))
        row = await rows.get_search(tx, started.row["id"])
        over = {
            **row, "id": "0123456789", "test": "TestMatmul.test_bf16", "state": "found", "confidence": "commit",
            "culprit_sha": culprit, "parent_sha": shas[trunk_history.BACKEND_BROKE - 1], "suspects": [culprit],
            "why": f"npu: TestMatmul.test_bf16 is broken by #170 ({culprit[:7]}, octocat): passed on its parent "
            f"{shas[trunk_history.BACKEND_BROKE - 1][:7]} in 1 run, failed here in 2.",
            "files": ["torch/csrc/matmul.cpp", "test/test_matmul.py"], "ended_at": row["created_at"] + 9_000_000,
            "good_runs": 1, "bad_runs": 2, "pr_number": 170, "author": "octocat",
        }  # fmt: skip
        await tx.run(sa.insert(bisect).values(**over))


# A pull request whose tests have reports, upstream's and those of backends, with names as long as they come.


TESTED_JOB = "linux-jammy-cuda12.8-py3.10 / test (default, {}, 2, linux.g5.4xlarge.nvidia.gpu)"
LONG = {
    "name": "test_" + "very_long_name_" * 12 + "[dtype=float32,device=cuda:0]",
    "message": "AssertionError: " + "x" * 900,
    "stacktrace": "\n".join(f"File line {number}: " + "y" * 200 for number in range(20)),
}
BROKEN = b"<testsuite><testcase name='cut"


async def tell_tests(bot, github):
    """Have a pull request tested by upstream and two backends; returns its head."""
    fork = github.add_repo("somebody/pytorch", install=[])
    pull = await github.open_pull(UPSTREAM, title="Make the kernels of small tensors faster", author="hubot")
    await bot.settle()
    run = await github.start_run(
        UPSTREAM, event="pull_request", name="pull", head_repo=fork, head_sha=pull.head_sha
    )
    first = await _tested_job(
        github, run, TESTED_JOB.format(1), {**test_reports.junit("cuda", (MATMUL,)), "broken.xml": BROKEN}
    )
    await _tested_job(github, run, TESTED_JOB.format(2), {"long.xml": _report(LONG)})
    await github.finish_run(run, "failure")
    for backend, device, failed in ((L3, "npu", (SCATTER, FFT)), (L4, "tpu", (SCATTER, MATMUL))):
        theirs = await github.start_run(backend, event="repository_dispatch")
        reports = test_reports.junit(device, failed, flaky=(test_reports.FLAKY,))
        await _tested_job(github, theirs, "test", reports)
        await bot.report(bot.dispatch(backend), job="test", conclusion="failure", run_id=str(theirs.id))
        await github.finish_run(theirs, "failure")
    await bot.settle(horizon=300)
    return pull.head_sha, run.id, first.id


async def _tested_job(github, run, name, reports):
    job = await github.start_job(run, name)
    github.add_artifact(run, f"test-reports_{job.id}", reports)
    await github.finish_job(job, "failure")
    return job


def _report(test):
    failure = f'<failure message="{test["message"]}">{test["stacktrace"]}</failure>'
    place = (
        'file="test/a_rather_long_folder_name/test_file_with_a_long_name.py" classname="TestAllKindsOfThings"'
    )
    return f'<testsuite name="pytest"><testcase {place} name="{test["name"]}">{failure}</testcase></testsuite>'.encode()

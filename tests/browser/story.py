"""A bot with a month of results of a dozen backends, open pull requests and failures of every kind."""

from __future__ import annotations

import random

from bot.demo import trunk_history
from bot.evidence.disabled.feature import DisabledSettings
from bot.oot.results import jobs
from tests.browser import measured, searched, tested
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
    await measured.tell(bot, github)
    await tested.tell(bot, github)
    await searched.tell(bot)
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

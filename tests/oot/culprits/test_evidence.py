"""What a run says of its commit: test results and logs decide, and what says nothing blames nobody."""

import pytest
import sqlalchemy as sa

from bot.evidence.logs.tables import ci_log, ci_verdict
from bot.evidence.tests.parse.block import Code, code_of, encode
from bot.evidence.tests.tables import test, test_class, test_job
from bot.ingest.tables import repository_name
from bot.jobs import branch_history, branch_reads
from bot.oot.culprits import job_runs
from bot.oot.culprits.start import SignalPlace
from tests.harness import L3, UPSTREAM
from tests.oot.culprits.searched import JOB, SPELLED, WORKFLOW, Branch

LONG = pytest.mark.nightly
SIGNATURE = "5" * 64
EMPTY = {sa.Text: "", sa.BigInteger: 0, sa.Integer: 0, sa.SmallInteger: 0, sa.Boolean: False, sa.LargeBinary: b"",
         sa.JSON: []}  # fmt: skip


def blank(table, **values):
    """A row with these values, and nothing in all other columns."""
    row = {}
    for column in table.columns:
        kind = next(kind for kind in EMPTY if isinstance(column.type, kind))
        row[column.name] = None if column.nullable else EMPTY[kind]
    return row | values


async def words(bot, branch, *, test="", signature="", known=None):
    """What the runs of the job say of each commit."""
    async with bot.store.read() as tx:
        found = await branch_history.find_branch_of(tx, UPSTREAM, "main")
        main = branch_reads.Branch(repository=found.repository, names=found.names, name="main")
        signal = SignalPlace(branch=main, backend=L3, label="npu").signal(
            f"{WORKFLOW} / {JOB}", test=test, signature=signature
        )
        runs = await job_runs.read_job_runs(tx, bot.context.settings, main, signal, branch.shas, known=known)
    return {branch.name(run.sha): (run.word, run.why) for run in runs}


async def test_test_results_say_how_a_test_ended(bot, github):
    branch = Branch(bot, github)
    await branch.push(3)
    identifier = github.state.repo(L3).id
    for at in range(3):
        await branch.nightly(at, "failure", run_id=str(700 + at))
    async with bot.store.transaction() as tx:
        await tx.run(
            tx.insert(repository_name).values(blank(repository_name, name=L3, repository_id=identifier))
        )
        suite = blank(
            test_class, id=1, repository_id=identifier, suite="pkg.TestMatmul", file="test/test_x.py"
        )
        await tx.run(sa.insert(test_class).values(suite))
        one = blank(test, id=5, repository_id=identifier, class_id=1, name="test_bf16", digest=b"5")
        await tx.run(sa.insert(test).values(one))
        for at, code in ((0, Code.PASSED), (1, Code.SKIPPED)):
            job = blank(
                test_job, repository_id=identifier, run_id=700 + at, run_attempt=1, job_id=at + 1, generation=at + 1,
                upstream_sha=branch.shas[at], block=encode([(5, code_of(code, 1), 10)]),
            )  # fmt: skip
            await tx.run(sa.insert(test_job).values(job))
    said = await words(bot, branch, test=SPELLED)
    assert said["c0"] == ("good", "it passed")
    assert said["c1"] == said["c2"] == ("unbuildable", "it fails before the test says how it ends")
    assert {word for word, _ in (await words(bot, branch)).values()} == {"bad"}


async def log_says(bot, github, run_id, kind, signature=SIGNATURE):
    """The log of a backend's run was read, and says why the job failed."""
    repository = github.state.repo(L3)
    body = {
        "id": int(run_id) + 10_000, "run_id": int(run_id), "run_attempt": 1, "name": JOB, "workflow_name": WORKFLOW,
        "head_sha": "e" * 40, "status": "completed", "conclusion": "failure", "labels": [],
    }  # fmt: skip
    about = {"id": repository.id, "full_name": L3, "private": False, "updated_at": "2026-01-01T00:00:00Z"}
    await bot.send("workflow_job", {"action": "completed", "repository": about, "workflow_job": body})
    await bot.settle()
    async with bot.store.transaction() as tx:
        key = {"repository_id": repository.id, "job_id": body["id"]}
        await tx.run(
            sa.insert(ci_log).values(blank(ci_log, **key, run_id=int(run_id), run_attempt=1, state="stored"))
        )
        verdict = blank(
            ci_verdict, **key, current=True, rule="a rule", kind=kind, signature=signature, family="public"
        )
        await tx.run(sa.insert(ci_verdict).values(verdict))


@pytest.mark.parametrize(
    ("kind", "signature", "known", "said"),
    [
        ("test", SIGNATURE, job_runs.KnownFailure(), "bad"),
        ("infra", SIGNATURE, job_runs.KnownFailure(), "no_result"),
        ("build", SIGNATURE, job_runs.KnownFailure(kind="test", signature="1" * 64), "unbuildable"),
        pytest.param("timeout", SIGNATURE, job_runs.KnownFailure(), "no_result", marks=LONG),
        pytest.param(
            "build", SIGNATURE, job_runs.KnownFailure(kind="build", signature=SIGNATURE), "bad", marks=LONG
        ),
        pytest.param(
            "build",
            SIGNATURE,
            job_runs.KnownFailure(kind="build", signature="1" * 64),
            "unbuildable",
            marks=LONG,
        ),
        pytest.param("build", SIGNATURE, job_runs.KnownFailure(), "bad", marks=LONG),
    ],
)
@pytest.mark.logic
async def test_the_log_says_whether_a_failure_counts(bot, github, kind, signature, known, said):
    branch = Branch(bot, github)
    await branch.push(1)
    await branch.nightly(0, "failure", run_id="800")
    await log_says(bot, github, "800", kind, signature)
    assert (await words(bot, branch, known=known))["c0"][0] == said
    assert (await words(bot, branch, signature="9" * 64))["c0"][0] in {"unbuildable", "no_result"}


@pytest.mark.logic
async def test_what_was_cancelled_or_skipped_says_nothing(bot, github):
    branch = Branch(bot, github)
    await branch.push(3)
    for at, conclusion in enumerate(("cancelled", "skipped", "neutral")):
        await branch.nightly(at, conclusion)
    assert await words(bot, branch) == {
        "c0": ("no_result", "it ended as cancelled"),
        "c1": ("no_result", "it ended as skipped"),
        "c2": ("no_result", "it ended as neutral"),
    }

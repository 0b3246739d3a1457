"""Do gate, comment, check runs, page, JSON and /red count the same failures? The same stories, told to all of them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.agreement import gate_of_page, text_of
from tests.evidence.tests.reported import JOB, case, leave, ran, xml
from tests.harness import L3, L4, UPSTREAM
from tests.pages.page_checks import failures
from tests.serving import SQLITE

pytestmark = SQLITE
HORIZON = 200
DEVICES = {L3: "npu", L4: "tpu"}
ADD, SUB = case("test_add", "failed"), case("test_sub", "failed")
PUSHED = f"L3:\n  npu: {{{L3}: {{events: [pull_request, push], answers: all}}}}\nL4:\n  tpu: {{{L4}: {{events: [pull_request, push]}}}}\n"


def named(*names):
    """Failed tests as a report lists them."""
    return {
        "failed_tests": [{"name": name, "classname": "TestOps"} for name in names],
        "test_results": {"passed": 5, "failed": len(names), "skipped": 0},
    }


def counted(failed):
    """The same without names."""
    return {"test_results": {"passed": 5, "failed": failed, "skipped": 0}}


class Told:
    """What backends do on commits, as they tell it: by reports, and by reports of tests."""

    def __init__(self, bot, github):
        self.bot, self.github = bot, github

    async def pull(self):
        """A pull request on which both backends have a check run."""
        self.bot.clock.advance(60)
        made = await self.github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
        await self.bot.settle()
        return made

    async def base(self, **reports):
        """A commit of the branch, before the pull request."""
        (self.bot.context.settings.data_dir / "allowlist.yml").write_text(PUSHED)
        self.bot.clock.advance(600)
        await self.bot.wait(600)
        await self.github.push(UPSTREAM, "main", message="before")
        await self.bot.settle()
        for repo, device in DEVICES.items():
            conclusion, said = reports.get(device, ("success", {}))
            await self.bot.report(self.bot.dispatch(repo), conclusion=conclusion, run_id="70", **said)
        await self.bot.settle(horizon=HORIZON)

    async def runs(self, repo, *cases, conclusion="failure", **said):
        """A run that reports, and leaves a report of tests where there are cases."""
        run = await self.github.start_run(repo, event="repository_dispatch")
        job = await self.github.start_job(run, JOB.replace("cuda", "device"))
        await self.bot.report(self.bot.dispatch(repo), conclusion=conclusion, run_id=str(run.id), **said)
        await self._leave(run, job, cases, conclusion)
        return run

    async def runs_again(self, repo, run, *cases, conclusion="success", **said):
        """Another attempt of it."""
        self.github.begin_attempt(run)
        job = await self.github.start_job(run, JOB.replace("cuda", "device"))
        dispatch = self.bot.dispatch(repo)
        await self.bot.report(dispatch, conclusion=conclusion, run_id=str(run.id), attempt=2, **said)
        await self._leave(run, job, cases, conclusion)

    async def _leave(self, run, job, cases, conclusion):
        if cases:
            await leave(self.github, run, job, {"a.xml": xml(*cases)}, conclusion=conclusion)
        else:
            await self.github.finish_job(job, conclusion)
            await self.github.finish_run(run, conclusion)
        await self.bot.settle(horizon=HORIZON)


async def new(told):
    await told.base()
    pull = await told.pull()
    await told.runs(L4, ADD, SUB, **named("test_add", "test_sub"))
    await told.runs(L3, ADD, **named("test_add"))
    return pull


async def known(told):
    await told.base(npu=("failure", named("test_add")), tpu=("failure", counted(1)))
    pull = await told.pull()
    await told.runs(L4, **counted(1))
    await told.runs(L3, **named("test_add"))
    return pull


async def new_on_one_and_known_on_the_other(told):
    await told.base(npu=("failure", named("test_add")))
    pull = await told.pull()
    await told.runs(L4, **named("test_add"))
    await told.runs(L3, **named("test_add"))
    return pull


async def flaky(told):
    pull = await told.pull()
    for repo in (L4, L3):
        run = await told.runs(repo, conclusion="success")
        await told.runs_again(repo, run, conclusion="failure", **named("test_add"))
    return pull


async def of_upstream_alone(told):
    pull = await told.pull()
    fork = told.github.add_repo("someone/pytorch", install=[])
    own = {"event": "pull_request", "head_repo": fork, "head_sha": pull.head_sha, "conclusion": "failure"}
    await ran(told.github, {"a.xml": xml(case("test_own", "failed"), ADD)}, **own)
    await told.runs(L4, ADD)
    await told.runs(L3, conclusion="success")
    return pull


async def allowed_to_fail(told):
    pull = await told.pull()
    await told.runs(L4, ADD, conclusion="success", **counted(1))
    await told.runs(L3, SUB, **named("test_sub"))
    return pull


async def passed_when_run_again(told):
    pull = await told.pull()
    run = await told.runs(L4, ADD, **named("test_add"))
    await told.runs(L3, ADD)
    await told.runs_again(L4, run)
    return pull


async def jobs_without_tests(told):
    pull = await told.pull()
    await told.runs(L4, job="build")
    await told.bot.report(told.bot.dispatch(L3), conclusion="failure", job="a", run_id="9")
    await told.bot.report(told.bot.dispatch(L3), conclusion="timed_out", job="b", run_id="9")
    await told.bot.settle(horizon=HORIZON)
    return pull


async def counted_without_names(told):
    pull = await told.pull()
    await told.runs(L4, **counted(7))
    await told.runs(L3, **(named("test_add") | counted(3)))
    return pull


async def reports_of_tests_alone(told):
    pull = await told.pull()
    await told.runs(L4, ADD, SUB)
    await told.runs(L3, ADD)
    return pull


STORIES = [  # what the comment says first
    (new, "❌ `tpu` blocks merging: 2 new failures · `npu`: 1 new failure"),
    (known, "❌ `tpu` blocks merging: 1 known failure · 1 unrelated"),
    (new_on_one_and_known_on_the_other, "❌ `tpu` blocks merging: 1 new failure · 1 unrelated"),
    (flaky, "❌ `tpu` blocks merging: 1 flaky failure · 1 unrelated"),
    (of_upstream_alone, "❌ `tpu` blocks merging: 1 failure"),
    (allowed_to_fail, "✅ backends allow it: 1 of 1 blocking backend passed · `npu`: 1 failure"),
    (passed_when_run_again, "✅ backends allow it: 1 of 1 blocking backend passed · `npu`: 1 failure"),
    (jobs_without_tests, "❌ `tpu` blocks merging: 1 failure · `npu`: 2 failures"),
    (counted_without_names, "❌ `tpu` blocks merging: 7 failures · `npu`: 3 failures"),
    (reports_of_tests_alone, "❌ `tpu` blocks merging: 2 failures · `npu`: 1 failure"),
]
ESSENCE = {new_on_one_and_known_on_the_other, allowed_to_fail}


@pytest.mark.parametrize(
    ("story", "said"),
    [
        pytest.param(*one, id=one[0].__name__, marks=() if one[0] in ESSENCE else pytest.mark.nightly)
        for one in STORIES
    ],
)
async def test_all_that_count_failures_count_the_same(bot, github, story, said):
    pull = await story(Told(bot, github))
    (comment,) = [one.body for one in github.comments(pull) if one.app is not None]
    assert comment.splitlines()[2] == f"**{said}**"
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    phrases = {device: phrase(answer, repo) for repo, device in DEVICES.items()}
    check_json(answer, phrases)
    check_comment(comment, answer, phrases)
    await check_page(bot, pull, answer, phrases)
    await check_red(bot, phrases)
    if phrases["tpu"]:
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1:] == ("failure", "tpu failed")


def phrase(answer, repo):
    """Count the failures on one backend by hand, from the list in JSON."""
    kinds = Counter()
    for one in answer["failures"]["failures"]:
        for compared in one["compared"]:
            if compared["repo"] == repo:
                kinds[compared["word"]] += one["count"]
    total, words = sum(kinds.values()), [word for word in kinds if word]
    noun = "failure" if total == 1 else "failures"
    if len(kinds) == 1 and words:
        return f"{total} {words[0]} {noun}"
    return ", ".join([f"{total} {noun}", *(f"{kinds[word]} {word}" for word in words)]) if total else ""


def check_json(answer, phrases):
    found = answer["failures"]
    assert sum(one["count"] for one in found["failures"]) == found["total"]
    assert {one["device"]: one["failed"] for one in answer["backends"] if one["device"]} == phrases
    assert answer["gate"]["sentence"] == (
        f"blocked by tpu: {phrases['tpu']}"
        if phrases["tpu"]
        else "backends allow it: 1 of 1 blocking backend passed"
    )


def check_comment(comment, answer, phrases):
    first = comment.splitlines()[2].strip("*")
    for part in first.split(" · "):
        if told := re.fullmatch(r"(?:❌ )?`(\w+)`(?: blocks merging)?: (.*)", part):
            assert told[2] == phrases[told[1]]
    on_backends = [
        one
        for one in answer["failures"]["failures"]
        if {compared["repo"] for compared in one["compared"]} & set(DEVICES)
    ]
    if unrelated := re.search(r"(\d+) unrelated", first):
        theirs = [
            one for one in on_backends if {"repo": L3, "word": "new"} not in one["compared"]
            and L3 in {compared["repo"] for compared in one["compared"]}
        ]  # fmt: skip
        assert int(unrelated[1]) == sum(one["count"] for one in theirs)
    tests = re.search(r"\*\*(\d+) failing tests?\*\*", comment)
    assert (int(tests[1]) if tests else 0) == sum(one["is_test"] for one in on_backends)


async def check_page(bot, pull, answer, phrases):
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert gate_of_page(page)[1] == answer["gate"]["sentence"]
    said = re.search(r'<p class="counted">(.*?)</p>', page)
    assert (text_of(said[1]) if said else "") == answer["failures"]["summary"]
    assert len(failures(page)) == len(answer["failures"]["failures"])
    shown = re.findall(r'</span><span class="under">(new|known|flaky|no baseline)</span>', page)
    told = [job["history"] for one in answer["backends"] for job in one["failing"] if job["history"]]
    assert sorted(shown) == sorted(told)
    moved = await bot.http.get(f"{bot.url}/{UPSTREAM}/commit/{pull.head_sha}", allow_redirects=False)
    assert moved.headers["Location"].startswith(f"/{UPSTREAM}/pull/{pull.number}?sha=")


async def check_red(bot, phrases):
    """A backend is red there by its newest runs: those that count."""
    _, red = await bot.get("/api/red")
    failing = {one["device"]: one["failing"] for one in red["red"]}
    for device, said in phrases.items():
        assert bool(failing.get(device)) == bool(said), device

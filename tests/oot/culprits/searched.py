"""A branch of upstream on which a backend is searched: pushes, nightly results, answers to what searches send."""

from collections import Counter
from dataclasses import dataclass, field

from tests.harness import L3, UPSTREAM

WORKFLOW, JOB = "CI", "test"
TEST = {"name": "test_bf16", "classname": "TestMatmul", "file": "test/test_matmul.py"}
SPELLED = "TestMatmul.test_bf16"


@dataclass
class Branch:
    """Commits c0, c1, ... of main, and how a backend fares on each."""

    bot: object
    github: object
    backend: str = L3
    shas: list[str] = field(default_factory=list)
    answered: int = 0  # dispatches of searches
    nights: int = 0
    runs: Counter = field(default_factory=Counter)  # by commit
    order: list[str] = field(default_factory=list)

    def name(self, sha: str) -> str:
        return f"c{self.shas.index(sha)}"

    async def push(self, count: int = 1, *, title: str | None = None) -> None:
        for _ in range(count):
            self.bot.clock.advance(60)
            number = len(self.shas)
            message = title or f"Change c{number} (#{100 + number})"
            self.shas.append(await self.github.push(UPSTREAM, message=message))
        await self.bot.settle()

    async def nightly(self, at: int, conclusion: str, *, run_id: str | None = None, **workflow) -> None:
        """The backend reports by itself how it fares on a commit."""
        self.nights += 1
        run_id = run_id or str(5_000 + self.nights)
        token = self.bot.issuer.mint(repository=self.backend, run_id=run_id, run_attempt=1)
        body = {
            "event_type": "nightly",
            "delivery_id": self.shas[at],
            "workflow": {
                "status": "completed",
                "conclusion": conclusion,
                "name": WORKFLOW,
                "job_name": JOB,
                "run_id": run_id,
                "run_attempt": 1,
                "url": f"https://github.com/{self.backend}/actions/runs/{run_id}",
                **workflow,
            },
        }
        headers = {"Authorization": f"Bearer {token}"}
        status, _ = await self.bot.request("POST", "/api/oot/callback", json=body, headers=headers)
        assert status == 200
        await self.bot.settle()

    def asked_names(self) -> list[str]:
        """The commits that were asked and have no answer yet."""
        shas = [one.client_payload["payload"]["after"] for one in self.asked()]
        return [self.name(sha) for sha in sorted(shas, key=self.shas.index)]

    def asked(self) -> list:
        """The dispatches of searches that were not answered yet."""
        sent = [one for one in self.github.dispatches if "bisect" in one.client_payload]
        return sent[self.answered :]

    async def answer(
        self, broken_from: int, *, flaky=(), builds=lambda at: True, job: str = JOB
    ) -> list[str]:
        """Answer what was asked as the backend would; returns the names of the commits."""
        asked = self.asked()
        self.answered += len(asked)
        asked.sort(key=lambda one: self.shas.index(one.client_payload["payload"]["after"]))
        for dispatch in asked:
            sha = dispatch.client_payload["payload"]["after"]
            at = self.shas.index(sha)
            self.runs[sha] += 1
            bad = at >= broken_from or (at in flaky and self.runs[sha] == 1)
            tests = [TEST] if bad and builds(at) else []
            run_id = str(9_000 + self.answered * 100 + self.runs.total())
            conclusion = "failure" if bad or not builds(at) else "success"
            for status in ("in_progress", "completed"):
                answer = await self.bot.report(
                    dispatch, status=status, conclusion=conclusion, job=job, run_id=run_id,
                    failed_tests=tests if status == "completed" else None,
                )  # fmt: skip
                assert answer[0] == 200, answer
        await self.bot.settle(horizon=5)
        names = [self.name(one.client_payload["payload"]["after"]) for one in asked]
        self.order += names
        return names

    async def search(self, identifier: str | None = None) -> dict:
        found = await self.bot.rows("bisect")
        return next(row for row in found if identifier in {None, row["id"]})

    async def finish(self, broken_from: int, **how) -> dict:
        """Answer until the search is over."""
        for _ in range(40):
            await self.bot.settle(horizon=5)
            if not await self.answer(broken_from, **how):
                break
        return await self.search()


async def broken_branch(bot, github, *, commits: int = 16, **workflow) -> Branch:
    """A branch on which the backend passed on c0 at night, and failed on the last commit."""
    branch = Branch(bot, github)
    await branch.push(commits)
    await branch.nightly(0, "success")
    await branch.nightly(commits - 1, "failure", **{"failed_tests": [TEST], **workflow})
    return branch

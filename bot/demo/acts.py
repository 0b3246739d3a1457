"""What happens in the demo's story? Act by act; each waits for what it should cause before the next begins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.demo import cast, seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.demo.github import CheckRun, Pull
    from bot.demo.loopback import Loopback


# Nobody labels and pushes within one second, the finest that GitHub's times tell apart.
BREATH = 1.1


class Story:
    """The story as far as it was told: its pull requests, and what was seen to come true."""

    def __init__(self, on: Loopback) -> None:
        self.on = on
        self.pulls: list[Pull] = []
        self.told: list[str] = []  # sentences that came true, in order

    async def play(self) -> None:
        """Play it to its end; raises NotAsToldError where it goes another way."""
        await self.on.ready()
        await self.opened()
        await self.blocked()
        await self.labelled()
        await self.pushed()
        await self.run_again()
        await self.left_red()

    async def opened(self) -> None:
        """Somebody opens a pull request; every backend is told, one reports for the HUD alone."""
        self.on.backends[cast.TPU].plan(*cast.tpu_jobs(cast.MATMUL, cast.SCATTER), attempt=1)
        self.pulls.append(
            await self.on.github.open_pull(
                cast.UPSTREAM,
                title="Multiply small matrices without a copy",
                author=cast.AUTHOR,
                body="Twice as fast for matrices below 64 by 64.",
            )
        )
        await self.expect("every listed backend is told of the pull request", self._all_dispatched)
        await self.expect("the L2 backend reports its success", lambda: self._reported(cast.RISCV))

    async def blocked(self) -> None:
        """The blocking backend fails: its check, the gate, and the one comment say so."""
        await self.expect(
            "the L4 backend's check fails with the two failed tests in its title",
            lambda: self._shows(cast.TPU_CHECK, "failure", "2 failed"),
        )
        await self.expect("the gate fails", lambda: self._shows(cast.GATE, "failure", "tpu failed"))
        tests = (str(cast.MATMUL["name"]), str(cast.SCATTER["name"]))
        await self.expect(
            "a comment names the failed tests and mentions the on-call",
            lambda: self._says(*tests, f"@{cast.TPU_ONCALL}", self._short()),
        )

    async def labelled(self) -> None:
        """The label of the non-blocking backend makes its check appear, whatever it has done so far."""
        await self.expect(
            "without its label the L3 backend has no check", lambda: not self._check(cast.NPU_CHECK)
        )
        await asyncio.sleep(BREATH)
        await self.on.github.label(self.pull, cast.NPU_LABEL)
        await self.expect("the label makes the L3 check appear", lambda: self._check(cast.NPU_CHECK))
        await self.expect(
            "the L3 check passes", lambda: self._shows(cast.NPU_CHECK, "success", "3140 passed")
        )

    async def pushed(self) -> None:
        """A new commit while no runner is free: the old verdict stays until something is reported."""
        await self._tpu_idle()
        before = self._short()
        self.on.backends[cast.TPU].plan(*cast.tpu_jobs(cast.MATMUL), attempt=1)
        self.on.runners.clear()
        await asyncio.sleep(BREATH)
        await self.on.github.push_commit(self.pull)
        await self.expect("a new commit has every backend told again", self._all_dispatched)
        await self.expect(
            "the new commit's checks wait",
            lambda: self._shows(cast.TPU_CHECK, "queued") and self._shows(cast.GATE, "in_progress", "tpu"),
        )
        await self.expect(
            "meanwhile the comment keeps the previous commit's verdict",
            lambda: self._says("previous commit", before, self._short(), str(cast.SCATTER["name"])),
        )
        self.on.runners.set()
        await self.expect(
            "one test fails again",
            lambda: self._shows(cast.TPU_CHECK, "failure", "1 failed"),
        )
        await self.expect(
            "the comment is about the new commit now",
            lambda: self._says(self._short(), str(cast.MATMUL["name"])) and not self._says("previous commit"),
        )
        await self.expect("the L3 check passes again", lambda: self._shows(cast.NPU_CHECK, "success"))

    async def run_again(self) -> None:
        """Somebody presses Re-run; the second attempt passes, and with it the gate."""
        await self._tpu_idle()
        failed = self._check(cast.TPU_CHECK)
        assert failed is not None
        await self._press_rerun(failed)
        await self.expect(
            "Re-run makes a new check of the same name, which passes",
            lambda: self._shows(cast.TPU_CHECK, "success") and self._check(cast.TPU_CHECK) is not failed,
        )
        await self.expect("the gate opens", lambda: self._shows(cast.GATE, "success", "1 blocking"))
        await self.expect(
            "the comment says that all have passed",
            lambda: self._says("2 passed") and not self._says(str(cast.MATMUL["name"])),
        )

    async def left_red(self) -> None:
        """A second pull request stays red, for the visitor to press Re-run on."""
        self.on.backends[cast.TPU].plan(*cast.tpu_jobs(cast.MATMUL, cast.SCATTER), attempt=1)
        self.on.backends[cast.NPU].plan(*cast.NPU_FAILS, attempt=1)
        self.pulls.append(
            await self.on.github.open_pull(
                cast.UPSTREAM,
                title="Reject empty indices in scatter_add",
                author=cast.AUTHOR,
                labels=[cast.NPU_LABEL],
                body="Press **Re-run** below: the second attempt passes.",
            )
        )
        await self.expect(
            "on a second pull request the L4 check fails",
            lambda: self._shows(cast.TPU_CHECK, "failure", "2 failed"),
        )
        await self.expect(
            "an L3 failure is shown, and neutral",
            lambda: self._shows(cast.NPU_CHECK, "neutral", "1 failed"),
        )
        await self.expect("its gate fails", lambda: self._shows(cast.GATE, "failure", "tpu failed"))
        await self.expect(
            "its comment names both backends",
            lambda: self._says("tpu", "npu", str(cast.MATMUL["name"]), "2 failed"),
        )
        await self._tpu_idle()

    async def expect(self, sentence: str, true: Callable[[], object]) -> None:
        """Wait until it is true and keep the sentence."""
        await self.on.until(sentence, true)
        self.told.append(sentence)

    @property
    def pull(self) -> Pull:
        """The pull request the story is about now."""
        return self.pulls[-1]

    def _short(self) -> str:
        return self.pull.head_sha[:7]

    def _check(self, name: str) -> CheckRun | None:
        return seen.checks(self.on.github, self.on.app, self.pull).get(name)

    def _shows(self, name: str, outcome: str, title: str = "") -> bool:
        run = self._check(name)
        return run is not None and seen.outcome(run) == outcome and title in (run.output.title or "")

    def _says(self, *words: str) -> bool:
        said = seen.comments(self.on.github, self.on.app, self.pull)
        return bool(said) and all(word in said[-1].body for word in words)

    def _all_dispatched(self) -> bool:
        sha = self.pull.head_sha
        told = {
            dispatch.repo.full_name
            for dispatch in self.on.github.dispatches
            if dispatch.client_payload["payload"]["pull_request"]["head"]["sha"] == sha
        }
        return told == set(cast.BACKENDS)

    def _reported(self, backend: str) -> bool:
        reports = self.on.backends[backend].reports
        return any(report.status == "completed" and report.exit_code == 0 for report in reports)

    async def _tpu_idle(self) -> None:
        """Wait for GitHub's end of the run: a run that still goes cannot be run again."""
        runs = self.on.github.world.repo(cast.TPU).runs
        await self.on.until(
            f"the runs of {cast.TPU} end", lambda: all(run.status == "completed" for run in runs.values())
        )

    async def _press_rerun(self, run: CheckRun) -> None:
        """Press the button on the pull request's page, as a browser does."""
        url = f"{self.on.github.url}/{run.repo.full_name}/runs/{run.id}/rerequest"
        async with self.on.http.post(url) as page:
            page.raise_for_status()

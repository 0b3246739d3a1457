"""What came before the demo's scenario beside upstream's pushes: merged contributions, and a backend's nightlies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo import job_documents, participants
from bot.demo.github import payloads
from bot.demo.github.models import Event, Pull
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.demo.github import SimulatedGitHub

HOUR, DAY = 3_600_000, 86_400_000  # milliseconds
FIRST_NUMBER = 140  # of the pull requests that the pushes' titles name
REVIEWER = "grace"
OUTSIDE = ("alice", "frank", "mallory", "judy", "oscar", "peggy", "trent", "victor")
NIGHTS = 24
NIGHTLY_JOB, BUILD_JOB = "npu / test (benchmarks, 1, 1, npu.8)", "npu / build"


def contributions(github: SimulatedGitHub, commits: Sequence[str]) -> Iterator[Event]:
    """Yield what GitHub tells of pull requests of outside people by which some commits came, oldest first.

    They are told as edited, much later: nothing is dispatched for them.
    """
    repo = github.state.repo(participants.UPSTREAM)
    for place, sha in enumerate(commits):
        if place % 3 == 2:  # a member's own
            continue
        commit = repo.commits[sha]
        waited = (6 + place * 11 % 90) * HOUR
        pull = Pull(
            id=github.state.new_id(),
            issue_id=github.state.new_id(),
            repo=repo,
            number=FIRST_NUMBER + place,
            title=commit.message.partition(" (#")[0],
            body="",
            author=OUTSIDE[(place * place + place) % (1 + place // 4) % len(OUTSIDE)],
            author_association="CONTRIBUTOR",
            draft=False,
            from_fork=True,
            head_ref=f"change-{FIRST_NUMBER + place}",
            head_sha=sha,
            base_ref=repo.default_branch,
            base_sha=commit.parents[0],
            files=(),
            created_at=commit.at - waited,
            updated_at=commit.at,
            state="closed",
            closed_at=commit.at,
            merged_at=commit.at,
            merged_by=REVIEWER,
            merge_commit_sha=sha,
        )
        yield payloads.pull_request(github.state, pull, "edited", REVIEWER, changes={})
        yield _review(github, pull, at=commit.at - waited * 2 // 3)


def _review(github: SimulatedGitHub, pull: Pull, *, at: int) -> Event:
    url = f"{github.api_url}/repos/{pull.repo.full_name}/pulls/{pull.number}"
    review: dict[str, Any] = {
        "id": github.state.new_id(),
        "node_id": f"PRR_{pull.number}",
        "user": {"login": REVIEWER, "id": 7},
        "body": "",
        "state": "approved",
        "author_association": "MEMBER",
        "commit_id": pull.head_sha,
        "submitted_at": iso(at),
        "updated_at": iso(at),
        "html_url": f"{github.url}/{pull.repo.full_name}/pull/{pull.number}#pullrequestreview",
        "pull_request_url": url,
    }
    body = {"review": review}
    return Event(name="pull_request_review", action="submitted", repo=pull.repo, sender=REVIEWER, body=body)


def nightlies(github: SimulatedGitHub, *, now: int) -> Iterator[Event]:
    """Yield the nightly runs of a backend, which measure the same models on its device, oldest first."""
    repo = github.state.repo(participants.NPU)
    for night in range(NIGHTS):
        at = now - (NIGHTS - night) * DAY
        workflow = github.state.workflow(repo, "Nightly")
        run = github.queued_run(repo, workflow=workflow, event="schedule", actor="octocat")
        run.created_at = run.started_at = at
        for name, minutes in ((BUILD_JOB, 38), (NIGHTLY_JOB, 71)):
            times = (at, at + 60_000, at + minutes * 60_000)
            job = github.past_job(run, name, ("self-hosted", "npu.8"), conclusion="success", times=times)
            if name == BUILD_JOB:
                github.add_artifact(
                    run, f"sccache-stats-{job.id}", job_documents.cache_stats(night, broke=NIGHTS)
                )
            else:
                records = job_documents.benchmarks(night, device="npu", slower=1.2, slowed=NIGHTS)
                github.add_artifact(run, f"benchmark-results-{job.id}", records)
            yield payloads.workflow_job(github.state, job, "completed")
        run.status, run.conclusion, run.updated_at = "completed", "success", at + 72 * 60_000
        yield payloads.workflow_run(github.state, run, "completed")

"""What came before the demo's scenario beside upstream's pushes: merged pull requests, and a backend's nightlies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo import job_documents, participants
from bot.demo.github import git, payloads
from bot.demo.github.models import Event, Pull
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.demo.github import SimulatedGitHub
    from bot.demo.github.models import Repo

HOUR, DAY = 3_600_000, 86_400_000  # milliseconds
FIRST_NUMBER = 140  # of the pull requests that the pushes' titles name
REVIEWER = "grace"
OUTSIDE = ("alice", "frank", "mallory", "judy", "oscar", "peggy", "trent", "victor")
MEMBERS = ("octocat", "hubot", "grace")
OWN = 2
NIGHTS = 24
NIGHTLY_JOB, BUILD_JOB = "npu / test (benchmarks, 1, 1, npu.8)", "npu / build"


def author_of(place: int) -> str:
    """Return who wrote the pull request of a push, by its place among them: every third is a member's."""
    if place % 3 == OWN:
        return MEMBERS[place % len(MEMBERS)]
    return OUTSIDE[(place * place + place) % (1 + place // 4) % len(OUTSIDE)]


def make_pulls(github: SimulatedGitHub, commits: Sequence[str]) -> list[Pull]:
    """Return the pull requests by which some commits came, oldest first, each with the commits that it had.

    They are squashed when they are merged: no commit of theirs is on the branch.
    """
    repo, pulls = github.state.repo(participants.UPSTREAM), []
    for place, sha in enumerate(commits):
        pull = _make_pull(github, repo, place, sha)
        repo.pulls[pull.number] = pull
        pulls.append(pull)
    return pulls


def _make_pull(github: SimulatedGitHub, repo: Repo, place: int, sha: str) -> Pull:
    commit, own = repo.commits[sha], place % 3 == OWN
    opened_at = commit.at - (20 + place * 11 % 76) * HOUR
    title = commit.message.partition(" (#")[0]
    messages = (title, *["Address the review"] * (1 + place % 3))
    heads = _push_heads(repo, commit.parents[0], messages, commit.author, span=(opened_at, commit.at))
    return Pull(
        id=github.state.new_id(),
        issue_id=github.state.new_id(),
        repo=repo,
        number=FIRST_NUMBER + place,
        title=title,
        body="",
        author=commit.author,
        author_association="MEMBER" if own else "CONTRIBUTOR",
        draft=False,
        from_fork=True,
        head_ref=f"change-{FIRST_NUMBER + place}",
        head_sha=heads[-1],
        base_ref=repo.default_branch,
        base_sha=commit.parents[0],
        files=(),
        commits=heads,
        created_at=opened_at,
        updated_at=commit.at,
        state="closed",
        closed_at=commit.at,
        merged_at=commit.at,
        merged_by=REVIEWER,
        merge_commit_sha=sha,
    )


def _push_heads(
    repo: Repo, base: str, messages: Sequence[str], author: str, *, span: tuple[int, int]
) -> list[str]:
    """Make commits one after the other within a span of time; returns them, oldest first."""
    began, ended = span
    head, heads = base, []
    for number, message in enumerate(messages):
        at = began + (ended - began) * number // len(messages)
        head = git.commit(repo, at=at, message=message, author=author, parents=(head,)).sha
        heads.append(head)
    return heads


def contributions(github: SimulatedGitHub, pulls: Sequence[Pull]) -> Iterator[Event]:
    """Yield what GitHub tells of merged pull requests and their reviews, oldest first.

    They are told as edited, much later: nothing is dispatched for them.
    """
    for pull in pulls:
        yield payloads.pull_request(github.state, pull, "edited", REVIEWER, changes={})
        if pull.author_association != "MEMBER":
            yield _review(github, pull, at=pull.created_at + (pull.updated_at - pull.created_at) // 3)


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

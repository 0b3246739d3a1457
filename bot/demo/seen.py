"""What does a pull request show on the simulated GitHub? Our App's check runs and comments, as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.demo.github import App, CheckRun, Comment, Pull, SimulatedGitHub

MARKER_LINES = 2  # of a comment: the marker, then an empty line


def checks(github: SimulatedGitHub, app: App, pull: Pull, sha: str | None = None) -> dict[str, CheckRun]:
    """Return the newest check run of each name on a commit, the head unless one is given."""
    runs = github.check_runs(pull.repo, sha or pull.head_sha)
    return {run.name: run for run in runs if run.app is app}


def comments(github: SimulatedGitHub, app: App, pull: Pull) -> list[Comment]:
    """Return the comments the App has made, oldest first."""
    return [comment for comment in github.comments(pull) if comment.app is app]


def outcome(run: CheckRun) -> str:
    """Return a check run's conclusion, its status while there is none."""
    return run.conclusion or run.status


def headline(body: str) -> str:
    """Return the first line of a comment that people read, without its Markdown."""
    lines = body.splitlines()[MARKER_LINES:]
    return lines[0].replace("**", "").replace("`", "") if lines else ""

"""Web pages of commits and artifacts, to which pages of the bot link: a commit, what came between two, a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.demo.github import git

if TYPE_CHECKING:
    from bot.demo.github.models import Commit, Repo
    from bot.demo.github.pages import Pages

MOST_COMMITS = 250  # on the page of a comparison


class CodePages:
    """The pages about commits, and the archives that runs left."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        add = application.router.add_get
        add("/{owner}/{repo}/commit/{sha}", self.commit)
        add("/{owner}/{repo}/compare/{base}...{head}", self.compare)
        add("/{owner}/{repo}/actions/runs/{run}/artifacts/{artifact}", self.artifact)

    async def commit(self, request: web.Request) -> web.Response:
        """Show a commit: its message, author, parents and check runs."""
        repo = self._pages.repo(request)
        found = _resolve(repo, request.match_info["sha"])
        pulls = [each for each in repo.pulls.values() if found.sha in {*each.commits, each.merge_commit_sha}]
        runs = [each for each in repo.runs.values() if each.head_sha == found.sha]
        checks = self._pages.check_runs(repo, found.sha)
        return self._pages.page("commit.html", repo=repo, commit=found, pulls=pulls, runs=runs, checks=checks)

    async def compare(self, request: web.Request) -> web.Response:
        """List the commits that one ref has and another lacks, oldest first."""
        repo, names = self._pages.repo(request), request.match_info
        base, head = _resolve(repo, names["base"]), _resolve(repo, names["head"])
        commits = git.only_in(repo, head.sha, base.sha)
        return self._pages.page(
            "compare.html",
            repo=repo,
            base=names["base"],
            head=names["head"],
            commits=commits[-MOST_COMMITS:],
            omitted=max(0, len(commits) - MOST_COMMITS),
        )

    async def artifact(self, request: web.Request) -> web.Response:
        """Send the archive that a run left."""
        parts = request.match_info
        numbers = [
            int(text) if text.isascii() and text.isdigit() else 0
            for text in (parts["run"], parts["artifact"])
        ]
        found = self._pages.repo(request).artifacts.get(numbers[1])
        if found is None or found.run.id != numbers[0]:
            raise web.HTTPNotFound(text="There is no such artifact.")
        return web.Response(
            body=found.content,
            content_type="application/zip",
            headers={
                "Content-Disposition": "attachment; filename=artifact.zip",
                "X-Content-Type-Options": "nosniff",
            },
        )


def _resolve(repo: Repo, ref: str) -> Commit:
    """Return the commit of a ref or of the beginning of a SHA; raise 404 when there is none."""
    found = git.resolve(repo, ref)
    if found is None and len(ref) >= git.SHORTEST:
        found = next((each for sha, each in repo.commits.items() if sha.startswith(ref)), None)
    if found is None:
        raise web.HTTPNotFound(text="There is no such commit.")
    return found

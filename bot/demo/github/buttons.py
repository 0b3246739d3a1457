"""What do a check's buttons and an App's settings page do?"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from bot.demo.github import payloads
from bot.demo.github.shapes import accounts, repository
from bot.demo.github.stage import Stage
from bot.demo.github.world import MAINTAINER

if TYPE_CHECKING:
    from bot.demo.github.accounts import App, Installation
    from bot.demo.github.state import CheckRun, Repo


SHORT = ("id", "node_id", "name", "full_name", "private")


class Buttons(Stage):
    """Requests to Apps, made by people who may write to the repository."""

    async def rerequest(self, check_run_id: int, by: str = MAINTAINER) -> None:
        """Press Re-run: the suite is queued again, the run stays, its App alone is told."""
        run = self._run(check_run_id)
        run.suite.reset = True
        await self.tell(
            payloads.check_run(self.world, run, "rerequested", by, only=run.app),
        )

    async def rerequest_suite(self, repo: Repo | str, sha: str, app: App, by: str = MAINTAINER) -> None:
        """Press Re-run all checks: the suite is queued again, its App alone is told."""
        suite = self.world.suite(self.world.repo(repo), app, sha)
        suite.reset = True
        event = payloads.check_suite(self.world, suite, "rerequested", by, only=app)
        await self.tell(event)

    async def request_action(self, check_run_id: int, identifier: str, by: str = MAINTAINER) -> None:
        """Press one of the run's own buttons; ValueError when it has no such button."""
        run = self._run(check_run_id)
        offered = [each["identifier"] for each in run.actions]
        if identifier not in offered:
            raise ValueError(f"{run.name} has no button {identifier!r}, only {offered}")
        pressed = {"identifier": identifier}
        await self.tell(
            payloads.check_run(
                self.world, run, "requested_action", by, only=run.app, requested_action=pressed
            )
        )

    def install(self, repo: Repo | str, app: App) -> Installation:
        """Let an App into a repository; `announce_installation` tells it."""
        return self.world.install(app, self.world.repo(repo))

    def uninstall(self, repo: Repo | str, app: App) -> None:
        """Take an App out of a repository, and out of the account with its last one; untold."""
        where = self.world.repo(repo)
        installation = self._installation(where, app)
        installation.repository_ids.discard(where.id)
        if not installation.repository_ids:
            del self.world.installations[installation.id]

    def suspend(self, repo: Repo | str, app: App, *, suspended: bool = True) -> None:
        """Suspend the App's installation on the repository's account, or end that; untold."""
        installation = self._installation(self.world.repo(repo), app)
        installation.suspended_at = self.world.now() if suspended else None

    def archive(self, repo: Repo | str, *, archived: bool = True) -> None:
        """Make a repository read-only, or writable again; untold."""
        self.world.repo(repo).archived = archived

    async def announce_installation(self, installation: Installation, action: str, *repos: Repo) -> None:
        """Tell an App about its installation.

        `created`, `deleted`, `suspend`, `unsuspend` and `new_permissions_accepted` are said of the
        whole installation, `added` and `removed` of the repositories given.
        """
        listed = repos or [
            each for each in self.world.repos.values() if each.id in installation.repository_ids
        ]
        named = [repository.named(self.world, each) for each in listed]
        short = [{key: each[key] for key in SHORT} for each in named]
        body: dict[str, Any] = {
            "action": action,
            "installation": accounts.installation(self.world, installation),
            "requester": None,
            "sender": accounts.user(self.world, MAINTAINER),
        }
        if action in {"added", "removed"}:
            body |= {"repository_selection": "selected"}
            body |= {"repositories_added": [], "repositories_removed": []}
            body[f"repositories_{action}"] = short
            name = "installation_repositories"
        else:
            body["repositories"] = short
            name = "installation"
        await self.hooks.send(installation.app, name, body, guid=str(uuid.uuid4()))

    async def ping(self, app: App) -> None:
        """Tell an App that its webhook is set up, as GitHub does once."""
        hook = {
            "type": "App",
            "id": app.app_id * 10,
            "active": True,
            "events": list(app.events),
            "app_id": app.app_id,
        }
        body = {"zen": "Keep it logically awesome.", "hook_id": app.app_id * 10, "hook": hook}
        await self.hooks.send(app, "ping", body, guid=str(uuid.uuid4()))

    def _run(self, number: int) -> CheckRun:
        for repo in self.world.repos.values():
            if number in repo.check_runs:
                return repo.check_runs[number]
        raise LookupError(f"no check run {number}")

    def _installation(self, repo: Repo, app: App) -> Installation:
        found = self.world.installation(app, repo.owner)
        if found is None:
            raise LookupError(f"{app.slug} is not installed on {repo.full_name}")
        return found

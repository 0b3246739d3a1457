"""The simulated GitHub as a whole: start and stop, set-up of its content, access to its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.demo.github import commit_statuses, git
from bot.demo.github.auth import private_key
from bot.demo.github.commit_statuses import CommitStatus
from bot.demo.github.faults import RateLimit
from bot.demo.github.issues import Issues
from bot.demo.github.models import Comment, Issue, Pull
from bot.demo.github.pages import Pages
from bot.demo.github.pull_requests import PullRequests, as_bytes
from bot.demo.github.registration import Installations, Registration
from bot.demo.github.rest_api import RestApi
from bot.demo.github.serializers import actions
from bot.demo.github.state import MAINTAINER
from bot.demo.github.workflows import Workflows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bot.core.clock import Clock
    from bot.demo.github.accounts import App
    from bot.demo.github.models import Call, CheckRun, Delivery, Dispatch, Reaction, Repo

LARGEST_BODY = 10 * 1024 * 1024  # bytes of an API request


class SimulatedGitHub(PullRequests, Issues, Installations, Workflows):
    """A GitHub on 127.0.0.1 that enforces what GitHub enforces.

    `alice` is an administrator of every repository; everyone else may read public ones, unless `set_permission`
    grants something else.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.rate_limit = RateLimit(self.state.now)
        self.extra_routes: Callable[[web.Application], None] | None = None  # adds routes at this address
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 picks a free one."""
        application = web.Application(client_max_size=LARGEST_BODY)
        pages = Pages(self)
        if self.extra_routes is not None:
            self.extra_routes(application)
        Registration(self, pages).add_to(application)
        RestApi(self, self.rate_limit).add_to(application)
        pages.add_to(application)
        await self.blob_host.start()
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, number = self._runner.addresses[0][:2]
        self.state.url = f"http://{host}:{number}"
        self.webhooks.open()

    async def stop(self) -> None:
        """Cancel the background tasks, close connections, stop listening.

        Raises an error of a CI callback that has not been raised yet.
        """
        try:
            await self.background.close()
        finally:
            await self.webhooks.close()
            await self.blob_host.stop()
            if self._runner:
                await self._runner.cleanup()
                self._runner = None

    async def settled(self) -> None:
        """Return when all webhooks and callbacks caused by API calls have finished."""
        await self.background.settled()

    @property
    def url(self) -> str:
        """The address of the web pages."""
        return self.state.url

    @property
    def api_url(self) -> str:
        """The address of the REST API."""
        return self.state.api_url

    @property
    def calls(self) -> list[Call]:
        """Every API call, oldest first."""
        return self.state.calls

    @property
    def deliveries(self) -> list[Delivery]:
        """Every delivery attempt to any App, oldest first."""
        return self.state.deliveries

    @property
    def dispatches(self) -> list[Dispatch]:
        """Every accepted dispatch, oldest first."""
        return self.state.dispatches

    def register_app(
        self,
        *,
        webhook_url: str | None,
        webhook_secret: str,
        permissions: Mapping[str, str] | None = None,
        events: Iterable[str] | None = None,
        slug: str = "ootbot",
        private_key_pem: str | None = None,
    ) -> App:
        """Register an App with these permissions and events, by default all that the bot uses.

        A given key saves the time to generate one.
        """
        return self.state.add_app(
            slug=slug,
            key=private_key_pem or private_key(),
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
            permissions=permissions,
            events=events,
        )

    def add_repo(
        self,
        full_name: str,
        *,
        private: bool = False,
        install: Sequence[App] | None = None,
        default_branch: str = "main",
    ) -> Repo:
        """Create a repository; `install` lists the Apps to install on it, None means all registered so far."""
        registered = [each for each in self.state.apps.values() if each.public_key_pem]
        return self.state.add_repo(
            full_name,
            private=private,
            install=registered if install is None else install,
            default_branch=default_branch,
        )

    def set_permission(self, repo: Repo | str, login: str, role: str) -> None:
        """Set a person's permission in a repository: admin, write, read or none."""
        self.state.repo(repo).permissions[login.lower()] = role

    def archive(self, repo: Repo | str, *, archived: bool = True) -> None:
        """Make a repository read-only or writable again, without sending webhooks."""
        self.state.repo(repo).archived = archived

    def set_file(
        self, repo: Repo | str, path: str, content: str | bytes, *, branch: str | None = None
    ) -> str:
        """Commit a file to a branch without sending webhooks; return the new head."""
        where = self.state.repo(repo)
        name = branch or where.default_branch
        commit = git.commit(
            where,
            at=self.state.now(),
            message=f"Write {path}",
            author=MAINTAINER,
            parents=(where.branches[name],),
            files={path: as_bytes(content)},
        )
        where.branches[name] = commit.sha
        return commit.sha

    async def set_status(
        self,
        repo: Repo | str,
        sha: str,
        context: str,
        state: str,
        *,
        description: str | None = None,
        target_url: str | None = None,
    ) -> None:
        """Set a commit status, as another CI does."""
        where = self.state.repo(repo)
        made = CommitStatus(
            id=self.state.new_id(),
            sha=sha,
            context=context,
            state=state,
            description=description,
            target_url=target_url,
            at=self.state.now(),
        )
        where.statuses.append(made)
        await self.webhooks.emit(commit_statuses.event(self.state, where, made))

    def check_runs(self, repo: Repo | str, sha: str | None = None) -> list[CheckRun]:
        """Return the newest check run of each App and name, oldest first."""
        return actions.latest(self.check_runs_all(repo, sha))

    def check_runs_all(self, repo: Repo | str, sha: str | None = None) -> list[CheckRun]:
        """Return every check run, oldest first."""
        runs = self.state.repo(repo).check_runs.values()
        return [run for run in runs if sha is None or run.head_sha == sha]

    def comments(self, of: Pull | Issue | Repo | str, number: int | None = None) -> list[Comment]:
        """Return the comments of a pull request or issue, or of a repository's `number`."""
        if isinstance(of, Pull | Issue):
            return [each for each in of.repo.comments.values() if each.pull is of]
        found = self.state.repo(of).comments.values()
        return [each for each in found if number is None or each.pull.number == number]

    def reactions(self, comment: Comment | int) -> list[Reaction]:
        """Return the reactions to a comment."""
        if isinstance(comment, Comment):
            return comment.reactions
        found = (repo.comments.get(comment) for repo in self.state.repos.values())
        return next(each for each in found if each).reactions

"""What is the simulated GitHub as a whole? Start it, fill it, act on it, look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.demo.github import git
from bot.demo.github.buttons import Buttons
from bot.demo.github.conversation import Conversation
from bot.demo.github.keys import private_key
from bot.demo.github.limits import Limits
from bot.demo.github.pages import Pages
from bot.demo.github.people import People, as_bytes
from bot.demo.github.pipelines import Pipelines
from bot.demo.github.registration import Registration
from bot.demo.github.server import RestApi
from bot.demo.github.shapes import checks
from bot.demo.github.state import Comment, Pull
from bot.demo.github.world import MAINTAINER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bot.clock import Clock
    from bot.demo.github.accounts import App
    from bot.demo.github.records import Call, Delivery, Dispatch
    from bot.demo.github.state import CheckRun, Reaction, Repo

LARGEST_BODY = 10 * 1024 * 1024  # bytes of an API request


class SimulatedGitHub(People, Conversation, Buttons, Pipelines):
    """A GitHub on 127.0.0.1 that enforces what GitHub enforces.

    `alice` has admin rights on every repository; everybody else reads public ones, until
    `set_permission` says otherwise.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.limits = Limits(self.world.now)
        self.also: Callable[[web.Application], None] | None = None  # what else answers at this address
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 picks a free one."""
        application = web.Application(client_max_size=LARGEST_BODY)
        pages = Pages(self)
        if self.also is not None:
            self.also(application)
        Registration(self, pages).add_to(application)
        RestApi(self, self.limits).add_to(application)
        pages.add_to(application)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, number = self._runner.addresses[0][:2]
        self.world.url = f"http://{host}:{number}"
        self.hooks.open()

    async def stop(self) -> None:
        """Cancel what is under way, hang up, stop listening.

        Raises what a hooked-in CI raised, if nobody has seen it yet.
        """
        try:
            await self.background.close()
        finally:
            await self.hooks.close()
            if self._runner:
                await self._runner.cleanup()
                self._runner = None

    async def settled(self) -> None:
        """Return when all webhooks and dispatched work that API calls set off are through."""
        await self.background.settled()

    @property
    def url(self) -> str:
        """The address of the web pages."""
        return self.world.url

    @property
    def api_url(self) -> str:
        """The address of the REST API."""
        return self.world.api_url

    @property
    def calls(self) -> list[Call]:
        """Every API call, oldest first."""
        return self.world.calls

    @property
    def deliveries(self) -> list[Delivery]:
        """Every delivery attempt to any App, oldest first."""
        return self.world.deliveries

    @property
    def dispatches(self) -> list[Dispatch]:
        """Every accepted dispatch, oldest first."""
        return self.world.dispatches

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
        """Register an App with all permissions and events the bot uses, or those given.

        A given key saves the time of making one.
        """
        return self.world.add_app(
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
        """Create a repository; `install` names the Apps let in, None all registered so far."""
        registered = [each for each in self.world.apps.values() if each.public_key_pem]
        return self.world.add_repo(
            full_name,
            private=private,
            install=registered if install is None else install,
            default_branch=default_branch,
        )

    def set_permission(self, repo: Repo | str, login: str, role: str) -> None:
        """Give a person admin, write, read or none in a repository."""
        self.world.repo(repo).permissions[login.lower()] = role

    def set_file(
        self, repo: Repo | str, path: str, content: str | bytes, *, branch: str | None = None
    ) -> str:
        """Commit a file to a branch without telling anybody; returns the new head."""
        where = self.world.repo(repo)
        name = branch or where.default_branch
        made = git.commit(
            where,
            at=self.world.now(),
            message=f"Write {path}",
            author=MAINTAINER,
            parents=(where.branches[name],),
            files={path: as_bytes(content)},
        )
        where.branches[name] = made.sha
        return made.sha

    def check_runs(self, repo: Repo | str, sha: str | None = None) -> list[CheckRun]:
        """Return the newest check run of each App and name, oldest first."""
        return checks.latest(self.check_runs_all(repo, sha))

    def check_runs_all(self, repo: Repo | str, sha: str | None = None) -> list[CheckRun]:
        """Return every check run, oldest first."""
        runs = self.world.repo(repo).check_runs.values()
        return [run for run in runs if sha is None or run.head_sha == sha]

    def comments(self, of: Pull | Repo | str, number: int | None = None) -> list[Comment]:
        """Return the comments of a pull request, or of a repository's pull request `number`."""
        if isinstance(of, Pull):
            return [each for each in of.repo.comments.values() if each.pull is of]
        found = self.world.repo(of).comments.values()
        return [each for each in found if number is None or each.pull.number == number]

    def reactions(self, comment: Comment | int) -> list[Reaction]:
        """Return the reactions to a comment."""
        if isinstance(comment, Comment):
            return comment.reactions
        found = (repo.comments.get(comment) for repo in self.world.repos.values())
        return next(each for each in found if each).reactions

"""State of the simulated GitHub: accounts, Apps, repositories and logs, with their lookups."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any

from bot.core.clock import SystemClock
from bot.demo.github import git
from bot.demo.github.accounts import App, Installation, User
from bot.demo.github.auth import public_key
from bot.demo.github.faults import Faults
from bot.demo.github.models import NEEDS, CheckSuite, Repo, Workflow
from bot.demo.github.webhooks import BackgroundTasks, Webhooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aiohttp import web

    from bot.core.clock import Clock
    from bot.demo.github.accounts import Token
    from bot.demo.github.models import Call, Delivery, Dispatch, Event, Pull

    OnAnswer = Callable[[Call, web.Response], None]

ALL_PERMISSIONS = {
    "actions": "write",
    "checks": "write",
    "contents": "write",
    "issues": "write",
    "merge_queues": "read",
    "metadata": "read",
    "pull_requests": "write",
    "statuses": "read",
}
MAINTAINER = "alice"  # administrator of every repository, and the user of the web pages
WORKFLOW_PATH = ".github/workflows/ci.yml"
FIRST_FILES = {
    "README.md": b"A repository of the simulation.\n",
    WORKFLOW_PATH: b"name: CI\non: [repository_dispatch, workflow_dispatch]\n",
}


class GitHubState:
    """Accounts, Apps, repositories and logs."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.url = ""  # set once the server listens
        self.token_life = 3_600_000  # milliseconds until an installation token expires
        self.server_version = ""  # of an Enterprise Server; empty: github.com, but for the address of its API
        self.replication = 0  # milliseconds until a new token has reached all servers
        self.announced_before = (
            0  # milliseconds until a new commit, pull request or run is known to all servers
        )
        self.apps: dict[int, App] = {}
        self.repos: dict[str, Repo] = {}  # by full name in lower case
        self.installations: dict[int, Installation] = {}
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.calls: list[Call] = []
        self.on_answer: OnAnswer | None = None  # called with each call and its answer
        self.deliveries: list[Delivery] = []
        self.dispatches: list[Dispatch] = []
        self._ids = itertools.count(1_000_001)
        self._app_ids = itertools.count(20_001)
        # Jobs are check runs of GitHub's own App, which is installed nowhere and receives no webhooks.
        self.actions_app = self.add_app(slug="github-actions", key=None)

    @property
    def api_url(self) -> str:
        """The address of the REST API, as on an Enterprise Server."""
        return f"{self.url}/api/v3"

    def count_ids_from(self, first: int) -> None:
        """Give new objects these ids: those of a new server are small."""
        self._ids = itertools.count(first)

    def new_id(self) -> int:
        """Return a new unique id."""
        return next(self._ids)

    def now(self) -> int:
        """Return the simulation's time in epoch milliseconds."""
        return self.clock.now()

    def add_app(
        self,
        *,
        slug: str,
        key: str | None,
        webhook_url: str | None = None,
        webhook_secret: str = "",
        permissions: Mapping[str, str] | None = None,
        events: Iterable[str] | None = None,
    ) -> App:
        """Register an App; `key` is its private key, None for one that signs nothing."""
        number = next(self._app_ids)
        app = App(
            app_id=number,
            client_id=f"Iv23li{number:014d}",
            slug=slug,
            private_key_pem=key or "",
            public_key_pem=public_key(key) if key else "",
            webhook_url=webhook_url,
            webhook_secret=webhook_secret,
            permissions={
                "metadata": "read",
                **(ALL_PERMISSIONS if permissions is None else permissions),
            },
            events=tuple(NEEDS if events is None else events),
            created_at=self.now(),
        )
        self.apps[number] = app
        self.user(app.bot_login, "Bot")
        return app

    def add_repo(self, full_name: str, *, private: bool, install: Sequence[App], default_branch: str) -> Repo:
        """Create a repository with one commit and install these Apps on it."""
        owner, _, name = full_name.partition("/")
        repo = Repo(
            id=self.new_id(),
            owner=owner,
            name=name,
            private=private,
            default_branch=default_branch,
            created_at=self.now(),
            permissions={MAINTAINER: "admin"},
        )
        first = git.commit(repo, at=self.now(), message="First commit", author=MAINTAINER, files=FIRST_FILES)
        repo.branches[default_branch] = first.sha
        self.user(owner, "Organization")
        self.repos[full_name.lower()] = repo
        for app in install:
            self.install(app, repo)
        return repo

    def install(self, app: App, repo: Repo) -> Installation:
        """Add a repository to the App's installation on its owner's account."""
        found = self.installation(app, repo.owner)
        if found is None:
            found = Installation(
                id=self.new_id(),
                app=app,
                account=repo.owner,
                repository_ids=set(),
                permissions=dict(app.permissions),
                created_at=self.now(),
            )
            self.installations[found.id] = found
        found.repository_ids.add(repo.id)
        return found

    def installation(self, app: App, account: str) -> Installation | None:
        """Return the App's installation on an account."""
        return next(
            (
                each
                for each in self.installations.values()
                if each.app is app and each.account.lower() == account.lower()
            ),
            None,
        )

    def installed_on(self, repo: Repo) -> list[Installation]:
        """Return the installations that cover a repository and are not suspended."""
        return [
            each
            for each in self.installations.values()
            if repo.id in each.repository_ids and each.suspended_at is None
        ]

    def user(self, login: str, kind: str = "User") -> User:
        """Return the account with that login; create it if needed."""
        key = login.lower()
        if key not in self.users:
            self.users[key] = User(id=self.new_id(), login=login, type=kind)
        return self.users[key]

    def repo(self, repo: Repo | str) -> Repo:
        """Return a repository by its full name; KeyError for an unknown one."""
        return self.repos[repo.lower()] if isinstance(repo, str) else repo

    def repo_by_id(self, number: int) -> Repo | None:
        """Return the repository with that id."""
        return next((each for each in self.repos.values() if each.id == number), None)

    def role(self, repo: Repo, login: str) -> str:
        """Return a person's permission in a repository: admin, write, read or none."""
        return repo.permissions.get(login.lower(), "none" if repo.private else "read")

    def suite(self, repo: Repo, app: App, sha: str) -> CheckSuite:
        """Return the App's suite on a commit; create it if needed."""
        for suite in repo.suites.values():
            if suite.app is app and suite.head_sha == sha:
                return suite
        return self.new_suite(repo, app, sha)

    def new_suite(self, repo: Repo, app: App, sha: str) -> CheckSuite:
        """Create a suite on a commit; only Actions has several, one for each run."""
        now = self.now()
        branch = next((name for name, head in repo.branches.items() if head == sha), None)
        suite = CheckSuite(
            id=self.new_id(),
            repo=repo,
            app=app,
            head_sha=sha,
            head_branch=branch,
            created_at=now,
            updated_at=now,
        )
        repo.suites[suite.id] = suite
        return suite

    def workflow(self, repo: Repo, name: str, path: str = WORKFLOW_PATH) -> Workflow:
        """Return the workflow with that name; create it if needed."""
        for workflow in repo.workflows.values():
            if workflow.name == name:
                return workflow
        if path in repo.workflows:
            path = f".github/workflows/{'-'.join(name.lower().split())}.yml"
        workflow = Workflow(id=self.new_id(), name=name, path=path, created_at=self.now())
        repo.workflows[path] = workflow
        return workflow

    def pulls_at(self, repo: Repo, sha: str) -> list[Pull]:
        """Return the open pull requests with that head."""
        return [each for each in repo.pulls.values() if each.head_sha == sha and each.state == "open"]


class GitHubBase:
    """State, and the delivery of events to Apps."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.state = GitHubState(clock or SystemClock())
        self.faults = Faults()
        self.webhooks = Webhooks(self.state, self.faults)
        self.background = BackgroundTasks()

    async def emit(self, *events: Event) -> list[Delivery]:
        """Send the webhooks of these events, one event after the other; return the deliveries."""
        return [delivery for event in events for delivery in await self.webhooks.emit(event)]

    async def deliver(
        self,
        event: str,
        payload: dict[str, Any],
        *,
        guid: str | None = None,
        app: App | None = None,
    ) -> Delivery:
        """Deliver any body to an App, by default the first registered one, signed and logged."""
        receiver = app or next(each for each in self.state.apps.values() if each.public_key_pem)
        return _sent(await self.webhooks.send(receiver, event, payload, guid=guid or str(uuid.uuid4())))

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Press Redeliver: the same body and GUID again, as a new row of the log."""
        return _sent(await self.webhooks.redeliver(delivery))


def _sent(delivery: Delivery | None) -> Delivery:
    if delivery is None:
        raise LookupError("nothing was sent: the App has no webhook_url, or a fault dropped the delivery")
    return delivery

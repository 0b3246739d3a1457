"""Web pages of the simulated GitHub, usable without JavaScript."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jinja2
import nh3
from aiohttp import web
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml

from bot.demo.github.code_pages import CodePages
from bot.demo.github.serializers import actions as serializers_actions
from bot.demo.github.state import MAINTAINER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.demo.github.models import CheckRun, Pull, Repo
    from bot.demo.github.simulated_github import SimulatedGitHub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict


TEMPLATES = Path(__file__).parent / "templates"
# Only our own stylesheet and forms are allowed: content in comments cannot load or run anything.
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data: http: https:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self' "
)
MARKS = {
    "success": "✓",
    "failure": "✕",
    "timed_out": "✕",
    "startup_failure": "✕",
    "action_required": "!",
    "cancelled": "⊘",
    "skipped": "⊘",
    "stale": "⊘",
    "neutral": "■",
    "in_progress": "●",
    "queued": "○",
}
SHOWN_DELIVERIES = 200
T = TypeVar("T")


class Pages:
    """The web pages; the signed-in user is `alice`."""

    def __init__(self, github: SimulatedGitHub) -> None:
        self._github = github
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._templates.filters |= {"markdown": render, "ago": self._ago, "clock": _clock}
        self._templates.globals |= {"marks": MARKS, "me": MAINTAINER}

    def add_to(self, application: web.Application) -> None:
        """Add the routes of pages and forms."""
        add = application.router.add_route
        add("GET", "/", self.index)
        add("GET", "/_/style.css", self.style)
        add("GET", "/_/deliveries", self.deliveries)
        add("POST", "/_/deliveries/{delivery}/redeliver", self.redeliver)
        add("GET", "/{login:[A-Za-z0-9-]+}", self.account)
        add("GET", "/{owner}/{repo}", self.repository)
        add("POST", "/{owner}/{repo}/pulls", self.open_pull)
        add("GET", "/{owner}/{repo}/pull/{number}", self.pull)
        add("POST", "/{owner}/{repo}/pull/{number}/{action}", self.act)
        add("GET", "/{owner}/{repo}/issues/new", self.new_issue)
        add("POST", "/{owner}/{repo}/issues/new", self.open_issue)
        add("GET", "/{owner}/{repo}/issues/{number}", self.issue)
        add("GET", "/{owner}/{repo}/runs/{run}", self.check_run)
        add("POST", "/{owner}/{repo}/runs/{run}/rerequest", self.rerequest)
        add("POST", "/{owner}/{repo}/runs/{run}/action", self.request_action)
        add("GET", "/{owner}/{repo}/actions/runs/{run}", self.workflow_run)
        add("GET", "/{owner}/{repo}/actions/runs/{run}/job/{job}", self.workflow_run)
        CodePages(self).add_to(application)

    async def index(self, _: web.Request) -> web.Response:
        """List the repositories and their pull requests."""
        return self.page("index.html", repos=list(self._github.state.repos.values()))

    async def repository(self, request: web.Request) -> web.Response:
        """Show one repository."""
        return self.page("index.html", repos=[self.repo(request)])

    async def account(self, request: web.Request) -> web.Response:
        """List the repositories of an account: people who are mentioned often have none."""
        login = request.match_info["login"].lower()
        owned = [repo for repo in self._github.state.repos.values() if repo.owner.lower() == login]
        return self.page("index.html", repos=owned)

    async def style(self, _: web.Request) -> web.FileResponse:
        """Send the stylesheet."""
        return web.FileResponse(TEMPLATES / "style.css")

    async def deliveries(self, _: web.Request) -> web.Response:
        """Show the newest entries of the delivery log."""
        rows = self._github.deliveries[: -SHOWN_DELIVERIES - 1 : -1]
        return self.page("deliveries.html", deliveries=rows)

    async def open_pull(self, request: web.Request) -> web.Response:
        """Open a pull request by octocat."""
        _same_site(request)
        pull = await self._github.open_pull(self.repo(request))
        raise web.HTTPSeeOther(f"/{pull.repo.full_name}/pull/{pull.number}")

    async def pull(self, request: web.Request) -> web.Response:
        """Show a pull request: conversation, commits and checks."""
        pull = self._pull(request)
        runs = self._github.check_runs(pull.repo, pull.head_sha)
        return self.page(
            "pull.html",
            pull=pull,
            commits=[pull.repo.commits[sha] for sha in pull.commits],
            comments=self._github.comments(pull),
            runs=runs,
            summary=_summary(runs),
        )

    async def issue(self, request: web.Request) -> web.Response:
        """Show an issue and its comments."""
        found = _find_or_refuse(self.repo(request).issues, request.match_info["number"])
        return self.page("issue.html", issue=found, comments=self._github.comments(found))

    async def new_issue(self, request: web.Request) -> web.Response:
        """Show the form for a new issue, filled in as the address says."""
        asked = request.query
        texts = {name: asked.get(name, "") for name in ("title", "body", "labels")}
        return self.page("new_issue.html", repo=self.repo(request), **texts)

    async def open_issue(self, request: web.Request) -> web.Response:
        """Open an issue."""
        _same_site(request)
        form = await request.post()
        title, body, labels = (str(form.get(name, "")).strip() for name in ("title", "body", "labels"))
        if not title:
            raise web.HTTPBadRequest(text="An issue needs a title.")
        named = [label for each in labels.split(",") if (label := each.strip())]
        issue = await self._github.open_issue(self.repo(request), title, body, labels=named)
        raise web.HTTPSeeOther(f"/{issue.repo.full_name}/issues/{issue.number}")

    def check_runs(self, repo: Repo, sha: str) -> list[CheckRun]:
        """Return the newest check run of each App and name on a commit."""
        return self._github.check_runs(repo, sha)

    async def check_run(self, request: web.Request) -> web.Response:
        """Show the whole output of a check run."""
        run = self._check_run(request)
        pulls = [each for each in run.repo.pulls.values() if run.head_sha in each.commits]
        return self.page("check_run.html", run=run, pulls=pulls)

    async def workflow_run(self, request: web.Request) -> web.Response:
        """Show a workflow run and its jobs."""
        run = _find_or_refuse(self.repo(request).runs, request.match_info["run"])
        return self.page("workflow_run.html", run=run, jobs=self._github.latest_jobs(run))

    async def redeliver(self, request: web.Request) -> web.Response:
        """Redeliver a webhook."""
        _same_site(request)
        rows = {each.id: each for each in self._github.deliveries}
        await self._github.redeliver(_find_or_refuse(rows, request.match_info["delivery"]))
        raise web.HTTPSeeOther("/_/deliveries")

    async def rerequest(self, request: web.Request) -> web.Response:
        """Press Re-run."""
        _same_site(request)
        run = self._check_run(request)
        await self._github.rerequest(run.id)
        raise web.HTTPSeeOther(_page_of(run))

    async def request_action(self, request: web.Request) -> web.Response:
        """Press one of a check run's own buttons."""
        _same_site(request)
        run, form = self._check_run(request), await request.post()
        try:
            await self._github.request_action(run.id, str(form.get("identifier")))
        except ValueError as unknown:
            raise web.HTTPNotFound(text=str(unknown)) from None
        raise web.HTTPSeeOther(_page_of(run))

    async def act(self, request: web.Request) -> web.Response:
        """Comment, label, push, close, reopen or merge, depending on the button."""
        _same_site(request)
        pull, form = self._pull(request), await request.post()
        text = str(form.get("text", "")).strip()
        actions: dict[str, Callable[[], Any]] = {
            "comment": lambda: self._github.comment(pull, text, by=str(form.get("by", MAINTAINER))),
            "label": lambda: self._github.label(pull, text),
            "unlabel": lambda: self._github.unlabel(pull, text),
            "push": lambda: self._github.push_commit(pull),
            "close": lambda: self._github.close(pull),
            "reopen": lambda: self._github.reopen(pull),
            "merge": lambda: self._github.merge(pull),
        }
        action = request.match_info["action"]
        if action not in actions:
            raise web.HTTPNotFound
        if text or action not in {"comment", "label", "unlabel"}:
            await actions[action]()
        raise web.HTTPSeeOther(f"/{pull.repo.full_name}/pull/{pull.number}")

    def page(self, template: str, *, redirects_to: str = "", **values: Any) -> web.Response:
        """Return a page; `redirects_to` is another origin to which its form may redirect."""
        text = self._templates.get_template(template).render(values)
        headers = {"Content-Security-Policy": POLICY + redirects_to, "Cache-Control": "no-store"}
        return web.Response(text=text, content_type="text/html", headers=headers)

    def repo(self, request: web.Request) -> Repo:
        """Return the repository that an address names; raise 404 when there is none."""
        parts = request.match_info
        return _find_or_refuse(self._github.state.repos, f"{parts['owner']}/{parts['repo']}".lower())

    def _pull(self, request: web.Request) -> Pull:
        return _find_or_refuse(self.repo(request).pulls, request.match_info["number"])

    def _check_run(self, request: web.Request) -> CheckRun:
        return _find_or_refuse(self.repo(request).check_runs, request.match_info["run"])

    def _ago(self, ms: int) -> str:
        """Return the time since then in its largest unit."""
        seconds = max(0, self._github.state.now() - ms) // 1000
        for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
            if seconds >= length:
                return f"{seconds // length} {unit} ago"
        return "just now"


def _find_or_refuse(items: Mapping[Any, T], key: str) -> T:
    """Return the item with that name or number; raise 404 when there is none."""
    number = int(key) if key.isascii() and key.isdigit() else key
    if number not in items:
        raise web.HTTPNotFound(text="There is nothing at this address.")
    return items[number]


def _same_site(request: web.Request) -> None:
    """Refuse a form sent from another site."""
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{request.host}":
        raise web.HTTPForbidden(text="This form was sent from another site.")


def _page_of(run: CheckRun) -> str:
    """Return the page to show after a check's button was pressed."""
    for pull in run.repo.pulls.values():
        if pull.head_sha == run.head_sha:
            return f"/{run.repo.full_name}/pull/{pull.number}"
    return f"/{run.repo.full_name}/runs/{run.id}"


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")


def _summary(runs: list[CheckRun]) -> str:
    """Return the heading of the checks box."""
    if not runs:
        return "No checks yet"
    unfinished = sum(run.status != "completed" for run in runs)
    bad = sum(run.conclusion in serializers_actions.BAD for run in runs)
    if bad:
        return f"{bad} of {len(runs)} checks failed"
    if unfinished:
        return f"{unfinished} of {len(runs)} checks haven't completed yet"
    return "All checks have passed"


# The part of GitHub's allowed tags that bots use. Other tags are removed.
TAGS = {
    "a", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p",
    "picture", "pre", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "summary",
    "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "tt", "ul", "var",
}  # fmt: skip


ATTRIBUTES = {
    "a": {"href", "title"},
    "details": {"open"},
    "img": {"src", "alt", "title", "width", "height", "align"},
    "div": {"align"},
    "ol": {"start"},
    "p": {"align"},
    "td": {"align", "colspan", "rowspan", "style"},
    "th": {"align", "colspan", "rowspan", "style"},
}


MENTION = re.compile(r"(?<![\w/.@-])@([a-z\d](?:[a-z\d-]{0,37}[a-z\d])?)(?![\w-])", re.IGNORECASE)


def render(text: str) -> str:
    """Return Markdown as safe HTML: no scripts, styles, forms or HTML comments."""
    return nh3.clean(
        _parser().render(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        allowed_classes={"a": {"mention"}},
        filter_style_properties={"text-align"},
        url_schemes={"http", "https", "mailto"},
    )


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.add_render_rule("text", _text)
    return parser


def _text(_: RendererHTML, tokens: Sequence[Token], index: int, __: OptionsDict, ___: EnvType) -> str:
    """Return plain text with its mentions linked, since these people would be notified."""
    link = r'<a class="mention" href="/\1">@\1</a>'
    return MENTION.sub(link, escapeHtml(tokens[index].content))

"""Helpers for tests of pages: their text, links and escaping, and rows as reports leave them."""

import html
import re
from html.parser import HTMLParser

from bot.oot.results import jobs
from tests.harness import UPSTREAM


async def page_text(bot, path, *, status=200, **options):
    """The page as text: tags gone, entities read, white space single."""
    answer, page = await bot.get(path, **options)
    assert answer == status, page
    assert page.startswith("<!doctype html>")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def links(page, containing):
    """The addresses a page leads to that contain a word."""
    return [html.unescape(one) for one in re.findall(r'href="([^"]+)"', page) if containing in one]


def failures(page):
    """The rows of the list of failures: what failed, where, whether it is known, and whose it is; then those folded."""
    _, _, rest = page.partition('<section id="failures">')
    rows = re.findall(r"<tr>\s*<th scope=\"row\">(.*?)</tr>", rest.partition("</section>")[0], re.DOTALL)
    return [[_text(cell) for cell in re.split(r"</t[hd]>\s*<td[^>]*>", row)] for row in rows]


def _text(markup):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


async def add_job(bot, **changes):
    """A job row as a report leaves it."""
    row = jobs.BLANK | {
        "dispatch_id": None, "status": "completed", "conclusion": "success", "downstream_repo": "org/tpu-backend",
        "upstream_repo": UPSTREAM, "pr_number": 1, "head_sha": "a" * 40, "delivery_id": "d", "workflow_name": "CI",
        "job_name": "build", "run_id": "1", "run_attempt": 1, "downstream_repo_level": 4,
        "event_type": "pull_request", "source": "callback", "flags": {}, "received_at": bot.clock.now(),
        "updated_at": bot.clock.now(), "queue_time": 20.0, "execution_time": 600.0, "completed_at": bot.clock.now(),
    } | changes  # fmt: skip
    row["job_key"] = jobs.job_key(row)
    async with bot.store.transaction() as tx:
        await jobs.add_jobs(tx, {row["job_key"]: row})
    return row


TAGS = frozenset([
    "a", "b", "bdi", "body", "br", "button", "circle", "code", "dd", "details", "div", "dl", "dt", "em",
    "figcaption", "figure", "footer", "form", "g", "h1", "h2", "h3", "h4", "head", "header", "html", "i",
    "input", "label", "li", "link", "main", "meta", "nav", "noscript", "option", "p", "path", "pre", "rect",
    "section", "select", "small", "span", "strong", "sub", "summary", "sup", "svg", "table", "tbody", "td",
    "text", "th", "thead", "time", "title", "tr", "ul",
])  # fmt: skip
OUR_SCRIPT = re.compile(r'<script src="/static/(?:page|comfort|grid)\.js\?v=[0-9a-f]{8}" defer></script>')
UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff\u0000]")


class _TagParser(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def check_escaped(page):
    """Nothing in a page is more than the templates put there."""
    parser = _TagParser()
    parser.feed(OUR_SCRIPT.sub("", page))
    for tag, attributes in parser.found:
        assert tag in TAGS, tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag
            if name in {"href", "src", "action"}:
                assert re.match(r"/(?!/)|[?#]|https?://", value), (tag, value)
    assert UNSEEN.search(page) is None
    assert "<!--" not in page

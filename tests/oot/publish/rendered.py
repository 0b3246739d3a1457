"""Markdown rendered as GitHub does and parsed, for assertions on what is seen."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from markdown_it import MarkdownIt

OUR_TAGS = {
    *("a", "br", "code", "details", "h3", "li", "p", "pre", "strong", "summary", "ul"),
    *("table", "tbody", "td", "th", "thead", "tr"),
}
OUR_LABELS = frozenset(
    {
        "log",
        "artifacts",
        "results",
        "run",
        "passing run",
        "same failure on base",
        "run that passed",
        "their results",
        "all of them",
        "All results",
        "All results of this backend",
        "All backends of this pull request",
        "What the words mean",
        "this pull request's page",
        "All of it is here",
    }
)
RENDERER = MarkdownIt("gfm-like", {"html": True})
# GitHub links addresses with a scheme, www. and e-mail, but neither `file.py` nor `//host`; _LINKED_BY_GITHUB knows the rest
RENDERER.linkify.set({"fuzzy_link": False, "fuzzy_email": False}).add("//", None)
_VOID = {"br"}
_LINKED_BY_GITHUB = re.compile(
    r"://|\bwww\.|\bmailto:|\bxmpp:|#\d|\bGH-\d|\b[0-9a-f]{7,40}\b|@\w|\w@\w", re.IGNORECASE
)
_UNSEEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200c-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)


@dataclass
class Seen(HTMLParser):
    """The elements, links, comments and running text of one rendered document."""

    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)  # label, href
    prose: list[str] = field(default_factory=list)  # text outside of code
    path: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def __hash__(self) -> int:
        return id(self)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name) for name, _ in attrs]
        if tag not in _VOID:
            self.path.append(tag)
        if tag == "a":
            self.links.append(("", dict(attrs).get("href") or ""))

    def handle_endtag(self, tag):
        if not self.path or self.path.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if "a" in self.path:
            label, href = self.links[-1]
            self.links[-1] = (label + data, href)
        if not {"code", "pre"} & set(self.path):
            self.prose.append(data)

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_decl(self, decl):
        self.unbalanced.append(decl)

    def handle_pi(self, data):
        self.unbalanced.append(data)


def see(markdown: str) -> Seen:
    """Render as GitHub does (tables, autolinks, raw HTML passed on) and take the HTML apart."""
    seen = Seen()
    seen.feed(RENDERER.render(markdown))
    seen.close()
    return seen


def complaints(markdown: str, *, live: frozenset[str] = frozenset(), comments: int = 0) -> list[str]:
    """Return what a stranger's word achieved in `markdown`; empty when it achieved nothing.

    `live` are the on-calls allowed to be mentioned; `comments` how many HTML comments are ours.
    """
    seen = see(markdown)
    prose = [re.sub(r"@([\w/-]+)", lambda m: "" if m[1] in live else m[0], p) for p in seen.prose]
    mentioned = set(re.findall(r"@(?=\w)([\w/-]+)", markdown))
    found = {
        "foreign tag": set(seen.tags) - OUR_TAGS,
        "foreign attribute": set(seen.attributes)
        - {("a", "href"), ("details", "open"), ("th", "style"), ("td", "style")},
        "foreign label": {label for label, _ in seen.links} - OUR_LABELS,
        "unsafe link": {h for _, h in seen.links if not re.match(r"https?://[\w.\[]", h)},
        "unbalanced": set(seen.unbalanced) | set(seen.path),
        "comment": seen.comments if len(seen.comments) != comments else [],
        "linked by GitHub": [text for text in prose if _LINKED_BY_GITHUB.search(text)],
        "mention": mentioned - live,
        "unseen": set(_UNSEEN.findall(markdown)),
        "table": _uneven_rows(markdown),
    }
    return [f"{kind}: {what!r}" for kind, what in found.items() if what]


def _uneven_rows(markdown: str) -> list[str]:
    columns, uneven = 0, []
    for line in markdown.split("\n"):
        if not line.startswith("| ") and not line.startswith("|--"):
            columns = 0
            continue
        columns = columns or line.count("|")
        if line.count("|") != columns:
            uneven.append(line)
    return uneven

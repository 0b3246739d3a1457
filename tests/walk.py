"""Walking all pages of a running bot: what a person reads on each of them, and its JSON."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qs, urldefrag, urljoin, urlsplit

ALIKE = 40  # pages of one kind that are opened
SKIPPED = re.compile(r"/api/|/static/|/log(\.txt|s)?$|/admin|/pull/\d{3}|\.csv$|/failures\?")
AS_JSON = "This page as JSON"


@dataclass
class Table:
    """A table: what it is called, the names of its columns, and its rows as text."""

    label: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    links: list[list[str]] = field(default_factory=list)  # of each row
    tiles: dict[str, str] = field(default_factory=dict)  # that stand above it

    def column(self, name):
        """Return the cells of a column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def named(self):
        """Yield each row as a dict by the names of columns, and its links."""
        for row, links in zip(self.rows, self.links, strict=True):
            yield dict(zip(self.columns, row, strict=False)), links


class Page(HTMLParser):
    """A page: its tables, its tiles (a name, a number, what stands under it), its links, its lines of text."""

    def __init__(self, path, text):
        super().__init__()
        self.path, self.source = path, text
        self.tables: list[Table] = []
        self.tiles: dict[str, str] = {}
        self.under: dict[str, list[str]] = {}
        self.links: list[tuple[str, str]] = []
        self.items: list[tuple[str, list[str]]] = []  # of lists: text and links
        self.json = None
        self._labels, self._href, self._above = [], "", {}
        self._cell = self._term = self._link = self._item = None
        self._hidden = 0
        self._in_row = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._close_before(tag)
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        if tag in ("svg", "style", "script", "title"):
            self._hidden += 1
        if tag == "div":
            self._labels.append(given.get("aria-label") or "")
        elif tag == "table":
            label = next((one for one in reversed(self._labels) if one), "")
            self.tables.append(Table(label, tiles=self._above))
        elif tag == "dl":
            self._above = {}
        elif tag == "tr" and self.tables:
            self._row, self._row_links, self._heads, self._in_row = [], [], True, True
        elif tag in ("td", "th") and self.tables:
            self._cell = []
            self._heads = self._heads and given.get("scope") in ("col", "colgroup")
        elif tag in ("dt", "dd"):
            self._term, self._unders, self._in_under = [], [], False
        elif tag == "span" and self._term is not None and "under" in classes:
            self._unders.append([])
            self._in_under = True
        elif tag == "li":
            self._item, self._item_links = [], []
        elif tag == "a":
            self._href, self._link = urljoin(self.path, given.get("href") or ""), []
        elif tag in ("br", "small", "p", "details", "summary"):
            self.handle_data(" ")

    def _close_before(self, tag):
        """Close the cell and the row that this tag ends, where their own end tags were left out."""
        if tag in ("td", "th", "tr", "tbody", "tfoot", "table") and self._cell is not None:
            self.handle_endtag("td")
        if tag in ("tr", "tbody", "tfoot", "table") and self._in_row:
            self.handle_endtag("tr")

    def handle_endtag(self, tag):
        if tag in ("tr", "tbody", "tfoot", "table") and self._cell is not None:
            self.handle_endtag("td")
        if tag in ("tbody", "tfoot", "table") and self._in_row:
            self.handle_endtag("tr")
        if tag in ("svg", "style", "script", "title"):
            self._hidden -= 1
        elif tag == "div" and self._labels:
            self._labels.pop()
        elif tag in ("td", "th") and self._cell is not None:
            self._row.append(" ".join("".join(self._cell).split()))
            self._cell = None
        elif tag == "tr" and self.tables:
            table, self._in_row = self.tables[-1], False
            if self._heads:
                table.columns = self._row
            else:
                table.rows.append(self._row)
                table.links.append(self._row_links)
        elif tag == "dt" and self._term is not None:
            self._name, self._term = " ".join("".join(self._term).split()), None
        elif tag == "dd" and self._term is not None:
            self.tiles[self._name] = self._above[self._name] = " ".join("".join(self._term).split())
            self.under[self._name] = [" ".join("".join(one).split()) for one in self._unders]
            self._term = None
        elif tag == "span":
            self._in_under = False
        elif tag == "li" and self._item is not None:
            self.items.append((" ".join("".join(self._item).split()), self._item_links))
            self._item = None
        elif tag == "a" and self._link is not None:
            self.links.append((self._href, "".join(self._link).strip()))
            if self._cell is not None:
                self._row_links.append(self._href)
            if self._item is not None:
                self._item_links.append(self._href)
            self._link = None

    def handle_data(self, data):
        if self._hidden:
            return
        for place in (self._cell, self._link, self._item):
            if place is not None:
                place.append(data)
        if self._term is not None:
            (self._unders[-1] if self._in_under else self._term).append(data)

    def table(self, label):
        """Return the table with a label, None where there is none."""
        return next((one for one in self.tables if one.label == label), None)


def kind(path):
    """Return what pages of one kind have in common: the path without what names a thing."""
    return re.sub(r"\d+", "N", re.sub(r"[0-9a-f]{16,64}", "S", urlsplit(path).path))


async def walk(http, base, *, start, alike=ALIKE):
    """Return every page that links lead to from a few, each with its JSON."""
    found, seen, opened, waiting = [], set(start), Counter(), deque(start)
    while waiting:
        path = waiting.popleft()
        if opened[kind(path)] >= alike:
            continue
        async with http.get(base + path) as answer:
            if answer.content_type != "text/html" or answer.status == 404:
                continue
            assert answer.status == 200, (path, answer.status)
            page = Page(path, await answer.text())
        opened[kind(path)] += 1
        found.append(page)
        for link, words in page.links:
            target = urldefrag(link)[0]
            if words == AS_JSON:
                async with http.get(base + target) as answer:
                    page.json = await answer.json()
            elif target not in seen and _is_followed(target):
                seen.add(target)
                waiting.append(target)
    return found


def _is_followed(target):
    is_page = target.startswith("/") and not target.startswith("//") and not SKIPPED.search(target)
    return is_page and not urlsplit(target).query


async def find_dead_links(http, base, pages, *, alike):
    """Return the links of some pages that lead to nothing: (page, link, status); of one kind only so many are tried."""
    tried, counted, dead = set(), Counter(), []
    for page in pages:
        for link, _ in page.links:
            target = urldefrag(link)[0].removeprefix(base)
            of_kind = kind(target), tuple(sorted(parse_qs(urlsplit(target).query)))
            if not target.startswith("/") or target in tried or counted[of_kind] >= alike:
                continue
            tried.add(target)
            counted[of_kind] += 1
            async with http.get(base + target) as answer:
                if answer.status >= 400:
                    dead.append((page.path, target, answer.status))
    return dead

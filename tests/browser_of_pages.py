"""How does a test use pages as a person does? It follows links, fills in forms, and keeps cookies."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

import aiohttp


class Page(HTMLParser):
    """What a person finds on a page: its forms and links."""

    def __init__(self, url, status, text, headers):
        super().__init__()
        self.url, self.status, self.text, self.headers = url, status, text, headers
        self.forms: list[dict] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "form" and found.get("role") != "search":  # the box of every page
            self.forms.append({"action": urljoin(self.url, found.get("action", "")), "fields": []})
        elif tag == "input" and self.forms and found.get("name"):
            self.forms[-1]["fields"].append((found["name"], found.get("value", "")))
        elif tag == "a":
            self.links.append(urljoin(self.url, found.get("href", "")))


class Visitor:
    """One browser."""

    def __init__(self):
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.http.close()

    async def open(self, url, **options):
        async with self.http.get(url, **options) as answer:
            return Page(str(answer.url), answer.status, await answer.text(), answer.headers)

    async def press(self, page, form=0, **changed):
        """Send a form, with some of its fields changed; returns the page it leads to."""
        chosen = page.forms[form]
        fields = [(name, changed.get(name, value)) for name, value in chosen["fields"]]
        async with self.http.post(chosen["action"], data=aiohttp.FormData(fields)) as answer:
            return Page(str(answer.url), answer.status, await answer.text(), answer.headers)

"""A feature adds everything it has by its own folder and its place in the list of features."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.core.feature import import_tables
from bot.db.rows import metadata
from bot.features import FEATURES
from bot.queue.sums import DAY
from bot.web.blocks import BlockLine
from tests import harness
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

ROOT = Path(__file__).parent.parent
TINY = {
    "feature.py": """
from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="tiny",
    tables="tiny.tables",
    tasks={"tiny_read": "tiny.tasks:read", "tiny_sweep": "tiny.tasks:sweep"},
    sums=("tiny.tasks:PULLS",),
    periodic="tiny.tasks:periodic",
    views="tiny.pages:VIEWS",
    routes="tiny.pages:setup",
    before_commit="tiny.tasks:before_commit",
    doctor="tiny.tasks:doctor",
    settings="tiny.settings:TinySettings",
    commands={"tiny": "tiny.tasks:command"},
    sections={"missing": "tiny.pages:section"},
    navigation=(NavigationEntry(bar="repository", path="/{repo}/tiny", label="Tiny", shown="tiny.pages:has_notes"),),
)
""",
    "settings.py": """
from dataclasses import dataclass

from bot.core import setting_types
from bot.core.settings import option


@dataclass(frozen=True, kw_only=True)
class TinySettings:
    tiny_limit: int = option("How many pull requests are noted.", setting_types.positive, default=7)
""",
    "tables.py": """
import sqlalchemy as sa

from bot.db.rows import metadata, must

tiny_note = sa.Table(
    "tiny_note", metadata, sa.Column("key", sa.Text, primary_key=True), must("state", sa.Text), must("sweeps", sa.Integer)
)

tiny_day = sa.Table(
    "tiny_day", metadata, must("repo", sa.Text), must("day", sa.Integer), must("pulls", sa.Integer),
    sa.PrimaryKeyConstraint("repo", "day")
)
""",
    "tasks.py": '''
import click
import sqlalchemy as sa

from bot.core.feature import ok
from bot.ingest.tables import records
from bot.queue import sums
from bot.queue.sums import DAY, Sum, SumPlace
from tiny.settings import TinySettings
from tiny.tables import tiny_day, tiny_note

PULLS = Sum(name="tiny", tables=(tiny_day,), group=("repo",), count="tiny.tasks:count_pulls")


async def count_pulls(context, place):
    pull = records["pull_request"].c
    created = pull.created_at.between(place.day * DAY, place.day * DAY + DAY - 1)
    query = sa.select(sa.func.count().label("pulls")).where(pull.repo == place.group[0], created)
    async with context.store.read() as tx:
        return {tiny_day: await tx.rows(query)}


async def before_commit(tx, changed):
    for row in changed.get("pull_request", ()):
        sums.request(tx, PULLS, [SumPlace((row["repo"],), row["created_at"] // DAY)])
        key = f"{row['repo']}#{row['number']}"
        await tx.run(tx.insert(tiny_note).values(key=key, state="noted", sweeps=0).on_conflict_do_nothing())
        tx.enqueue("tiny_read", key)


async def read(context, task):
    async with context.store.transaction() as tx:
        await tx.run(sa.update(tiny_note).where(tiny_note.c.key == task.key).values(state="read"))


async def sweep(context, task):
    async with context.store.transaction() as tx:
        await tx.run(sa.update(tiny_note).values(sweeps=tiny_note.c.sweeps + 1))


def periodic(settings):
    return {"tiny_sweep": 3600.0}


async def doctor(target):
    return [ok("tiny", f"at most {target.settings.of(TinySettings).tiny_limit}")]


@click.command("tiny")
def command():
    """Say something tiny."""
    click.echo("tiny, and there")
''',
    "pages.py": '''
from typing import Annotated

import sqlalchemy as sa
from aiohttp import web
from msgspec import Meta

from bot.web import html, openapi, parameters
from bot.web.answers import Answer
from bot.web.blocks import Block, BlockLine
from bot.web.view import Endpoint, Json, Page, View
from tiny.tables import tiny_note


class Notes(Answer, frozen=True, kw_only=True):
    """How many notes there are"""

    notes: Annotated[int, Meta(description="all of them")]


STATE = parameters.text("state", "only notes in this state", most=10)
WORD = parameters.choice("word", ("note", "record"), "what they are called", only="page")


async def count(asked):
    query = sa.select(tiny_note)
    if asked[STATE]:
        query = query.where(tiny_note.c.state == asked[STATE])
    return len(await asked.tx.rows(query)), asked[STATE], asked[WORD]


async def ping(request):
    return web.Response(text="pong")


async def section(tx, subject):
    note = await tx.row(sa.select(tiny_note).where(tiny_note.c.key.startswith(f"{subject.repo}#")))
    lines = (
        BlockLine(text=f"{note['state']} near {subject.path}", url="/tiny?a=1&b=2", tone="good"),
        BlockLine(text="<b>from outside</b>", url="javascript:alert(1)"),
    )
    return [Block(heading="Tiny & <small>", lines=lines)] if note else []


async def has_notes(asked, repo):
    return bool(await asked.tx.rows(sa.select(tiny_note).where(tiny_note.c.key.startswith(f"{repo}#"))))


def setup(app):
    html.add_names(app, filters={"loud": str.upper})


VIEWS = (
    View(
        read=count,
        parameters=(STATE, WORD),
        page=Page(
            path="/tiny", template="tiny.html", values=lambda found: {"notes": found[0], "word": found[2]}, refresh=None
        ),
        json=Json(
            path="/api/tiny",
            answer=lambda found: Notes(notes=found[0]),
            content=Notes,
            name="tiny",
            summary="Tiny notes",
            topic=openapi.Topic("Tiny", "Notes."),
            etag=True,
            link=lambda found: {"state": found[1]},
        ),
    ),
    Endpoint(web.get("/tiny/ping", ping)),
)
''',
    "templates/tiny.html": '{% extends "base.html" %}{% block main %}<h1>{{ notes }} {{ word|loud }}</h1>{% endblock %}',
}
CLI = (
    "from bot.cli import make_cli; from bot.features import FEATURES; from tiny.feature import FEATURE; "
    "make_cli((*FEATURES, FEATURE))()"
)


@pytest.fixture
def feature(request, tmp_path, monkeypatch):
    """A package with a feature, importable for one test; its migration is left out: see `bot` below."""
    name, files, tables = request.param
    folder = tmp_path / "packages" / name
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(folder.parent)
    yield importlib.import_module(f"{name}.feature").FEATURE
    for table in tables:
        if table in metadata.tables:
            metadata.remove(metadata.tables[table])
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


@pytest.fixture
async def bot(request, feature, settings, github, issuer, clock):
    """A bot with that feature, on a database that has its tables."""
    import_tables((feature,))
    engine = sa.create_engine(f"sqlite:///{settings.data_dir / 'ootbot.db'}")
    for table in request.node.callspec.params["feature"][2]:
        metadata.tables[table].create(engine)
    engine.dispose()
    features = (*FEATURES, feature)
    async with harness.running(
        settings, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as made:
        yield made


def documented():
    """The files of the first change that CONTRIBUTING shows, by name, as a package outside `bot`."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.findall(r"`bot/greeting/(\S+?)`[^`]*(?:`[^`\n]+`[^`]*)*?```\w+\n(.*?)```", text, re.DOTALL)
    return {name: code.replace("bot.greeting", "greeting") for name, code in shown}


with_tiny = pytest.mark.parametrize(
    "feature", [("tiny", TINY, ("tiny_note", "tiny_day"))], indirect=True, ids=["tiny"]
)
with_greeting = pytest.mark.parametrize(
    "feature", [("greeting", documented(), ("greeting",))], indirect=True, ids=["greeting"]
)


@SQLITE
@with_greeting
async def test_the_first_change_of_contributing_shows_its_number(bot):
    async with bot.context.store.transaction() as tx:
        table = metadata.tables["greeting"]
        await tx.run(sa.insert(table).values([{"name": name, "text": "hello"} for name in ("a", "b", "c")]))
    page = (await bot.get("/greetings"))[1]
    assert "<h1>3 greetings</h1>" in page
    assert 'href="/api/greetings"' in page
    assert await bot.get("/api/greetings") == (200, {"ok": True, "count": 3})
    assert "/api/greetings" in (await bot.get("/api/openapi.json"))[1]["paths"]


def test_the_first_change_of_contributing_is_short():
    files = documented()
    assert set(files) == {"tables.py", "views.py", "templates/greeting.html", "feature.py"}
    assert max(len(text.splitlines()) for text in files.values()) < 40


@SQLITE
@with_tiny
async def test_its_table_tasks_page_json_and_section_appear_in_a_running_bot(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    assert bot.dispatch(L4)
    (note,) = await bot.rows("tiny_note")
    assert (note["key"], note["state"]) == (f"{UPSTREAM}#{pull.number}", "read")
    (day,) = await bot.rows("tiny_day")
    assert (day["repo"], day["day"], day["pulls"]) == (UPSTREAM, bot.clock.now() // DAY, 1)
    await bot.wait(3601)
    (note,) = await bot.rows("tiny_note")
    assert note["sweeps"] >= 1

    assert "<h1>1 NOTE</h1>" in (await bot.get("/tiny"))[1]
    page = (await bot.get("/tiny?state=read&word=record"))[1]
    assert "<h1>1 RECORD</h1>" in page
    assert 'href="/api/tiny?state=read"' in page
    assert await bot.get("/api/tiny") == (200, {"ok": True, "notes": 1})
    assert await bot.get("/api/tiny?state=gone&word=ignored") == (200, {"ok": True, "notes": 0})
    assert (await bot.get("/tiny?word=wrong"))[0] == 400
    assert (await bot.get("/tiny/ping"))[1] == "pong"
    operation = (await bot.get("/api/openapi.json"))[1]["paths"]["/api/tiny"]["get"]
    assert operation["summary"] == "Tiny notes"
    assert [one["name"] for one in operation["parameters"]] == ["state"]
    assert set(operation["responses"]) == {"200", "400", "503"}
    assert "/api/tiny" in (await bot.get("/api"))[1]

    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    assert f'<a href="/{UPSTREAM}/tiny"><bdi>Tiny</bdi></a>' in page
    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}000"))[1]
    assert "<h2>Tiny &amp; &lt;small&gt;</h2>" in page
    assert f'href="/tiny?a=1&amp;b=2"><bdi>read near /{UPSTREAM}/pull/{pull.number}000</bdi>' in page
    assert "<bdi>&lt;b&gt;from outside&lt;/b&gt;</bdi>" in page
    assert "javascript:" not in page


@SQLITE
@with_tiny
async def test_its_setting_command_and_doctor_line_appear_on_the_command_line(bot):
    assert "tiny, and there" in await ootbot(bot, "tiny")
    assert "Say something tiny." in await ootbot(bot, "--help")
    assert "# tiny_limit = 7" in await ootbot(bot, "settings")
    found = json.loads(await ootbot(bot, "doctor", "--json"))["checks"]
    assert {"status": "ok", "name": "tiny", "detail": "at most 9", "next": ""} in found


@pytest.mark.parametrize(
    ("url", "href"),
    [
        ("/o/r/pull/1?sha=a#b", "/o/r/pull/1?sha=a#b"),
        ("https://example.org/a", "https://example.org/a"),
        ("//evil.example/a", None),
        ("/\\evil.example", "/%5Cevil.example"),
        ("javascript:alert(1)", None),
        ("relative", None),
        (None, None),
    ],
)
def test_a_line_of_a_section_links_only_where_it_is_safe(url, href):
    assert BlockLine(text="x", url=url).href == href


async def ootbot(bot, *arguments):
    """Run the command line with the tiny feature beside the bot; returns what it prints."""
    settings = bot.context.settings
    options = {
        "APP_ID": settings.app_id,
        "PRIVATE_KEY": settings.private_key,
        "WEBHOOK_SECRET": settings.webhook_secret[0],
        "UPSTREAM_REPO": settings.upstream_repo[0],
        "ALLOWLIST": settings.allowlist,
        "GITHUB_API_URL": settings.github_api_url,
        "DATA_DIR": settings.data_dir,
        "PUBLIC_URL": bot.url,
        "TINY_LIMIT": 9,
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": str(value) for name, value in options.items()}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(settings.data_dir / "packages")])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CLI,
        *arguments,
        cwd=settings.data_dir,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return out.decode()


EVERYTHING_BUT_PARSERS = """
import dataclasses, sys
import bot.app
from bot.core.feature import load
from bot.features import FEATURES
from bot.queue.sums import DAY

for feature in FEATURES:
    for field in dataclasses.fields(feature):
        value = getattr(feature, field.name)
        if field.name in {"parsers", "commands"}:
            continue
        named = value.values() if hasattr(value, "values") else value if isinstance(value, tuple) else [value]
        for reference in named:
            if isinstance(reference, str) and ":" in reference:
                load(reference)
print(*sys.modules)
"""


def test_the_bot_never_loads_what_parses_foreign_files():
    command = [sys.executable, "-c", EVERYTHING_BUT_PARSERS]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "bot.evidence.logs.store_log" in loaded
    parsers = {reference.partition(":")[0] for feature in FEATURES for reference in feature.parsers.values()}
    assert parsers
    assert (parsers | {"bot.evidence.logs.parse.parse_log"}) & loaded == set()

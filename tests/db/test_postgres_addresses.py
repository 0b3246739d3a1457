"""Which addresses of PostgreSQL work, which servers are refused, and what of a network that swallows everything?"""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import uuid

import pytest
import sqlalchemy as sa

from bot.core.errors import Misconfigured, StoreUnavailable
from bot.core.setting_types import read_address
from bot.db import postgres
from bot.db.installation import secret
from bot.ingest import intake
from bot.ingest.inbox import Incoming
from tests.databases import connected
from tests.db.opened import opened, opened_intake
from tests.pooler import PROGRAM, pooler
from tests.process import PATIENCE, ROOT
from tests.serving import POSTGRES


async def names(store):
    async with store.read() as tx:
        return sorted((await tx.run(sa.select(secret.c.name))).scalars())


async def keep(store, name):
    async with store.transaction() as tx:
        await tx.run(sa.insert(secret).values(name=name, value=b"x"))


@POSTGRES
@pytest.mark.parametrize(
    "query",
    [
        "sslmode=prefer&channel_binding=prefer&connect_timeout=10",
        "application_name=the%20bot&target_session_attrs=read-write",
        "pgbouncer=true&statement_cache_size=0",
    ],
)
async def test_an_address_may_hold_what_hosting_companies_write(database_url, clock, query):
    async with opened(f"{database_url}&{query}", clock) as store:
        await keep(store, "a")
        assert "a" in await names(store)
        if "application_name" in query:
            async with store.read() as tx:
                assert (await tx.run(sa.text("SHOW application_name"))).scalar() == "the bot"


@POSTGRES
async def test_of_several_hosts_one_that_answers_is_used(database_url, clock):
    url = sa.make_url(database_url)
    hosts = f"host=/nowhere,{url.query['host']}&target_session_attrs=primary"
    async with opened(f"postgresql://{url.username}@/{url.database}?{hosts}", clock) as store:
        await keep(store, "a")
        assert "a" in await names(store)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://host/db", "write postgresql://user:password@host/database"),
        ("postgresql://host/db?channel_binding=require", "the driver has none, so leave it out"),
        ("postgresql://host/db?target_session_attrs=read-only", "the bot has to write"),
        ("postgresql://host/db?sslmode=must", "sslmode may be disable, allow, prefer, require"),
        ("postgresql://host/db?keepalives=1", "keepalives cannot be set there: leave it out"),
        ("postgresql://host/db?connect_timeout=soon", "connect_timeout is a whole number of seconds"),
        ("postgresql://host/db?x", "must be name=value"),
        ("postgresql://host:port/db", "'host:port' is no host with a port"),
        ("postgresql://a,b:99999/db", "'b:99999' is no host with a port"),
        ("postgresql://user:pass@word@host/db", "write them as %40"),
        ("postgresql://user:pass/word@host/db", "write them as %40"),
        ("postgresql://user:pass?word@host/db", "write them as %40"),
        ("postgresql://user:pass#word@host/db", "write them as %40"),
        ("postgresql://user:password\n@host/db", "a space or a line break"),
    ],
)
def test_what_cannot_be_is_refused_without_showing_the_password(address, said):
    with pytest.raises(ValueError, match=r"\w") as refused:
        read_address(address)
    assert said in str(refused.value)
    assert "pass" not in str(refused.value).replace("password@host/database", "").replace("or password", "")
    assert "\n" not in str(refused.value)


@POSTGRES
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_all_text_is_refused(
    database_url, postgres_server, clock, encoding
):
    name = f"t{uuid.uuid4().hex}"
    async with connected(postgres_server) as conn:
        made = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        await conn.execute(f"CREATE DATABASE {name} {made}")
    with pytest.raises(Misconfigured) as refused:
        async with opened(postgres_server.replace("/postgres?", f"/{name}?"), clock):
            pass
    (problem,) = refused.value.problems
    assert f"the database {name} is in {encoding}" in problem
    assert "createdb --encoding=UTF8 --template=template0" in problem


@POSTGRES
async def test_a_user_who_may_make_no_tables_is_told_what_to_do(database_url, postgres_server, clock):
    name = f"t{uuid.uuid4().hex}"
    async with connected(postgres_server) as conn:
        await conn.execute(f"CREATE DATABASE {name}")
        await conn.execute(f"CREATE ROLE {name} LOGIN")
    url = postgres_server.replace("/postgres?", f"/{name}?")
    async with connected(url) as conn:
        await conn.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(StoreUnavailable, match="GRANT ALL ON SCHEMA public"):
        async with opened(url.replace("postgres:@", f"{name}:@"), clock):
            pass


OTHER_USER = """
import asyncio, sys
from bot.core.clock import SystemClock
from bot.core.errors import OotbotError
from bot.db.store import Store

try:
    asyncio.run(Store(sys.argv[1], clock=SystemClock()).open())
except OotbotError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("user", ["postgres@", ""])
def test_a_user_without_home_or_name_is_told_what_to_do(tmp_path, user):
    """As in a container that runs under any number, with the HOME of another user."""
    tmp_path.chmod(0o700)
    url = f"postgresql://{user}127.0.0.1:9/db"
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER, url], cwd=ROOT, env={"HOME": str(tmp_path)}, user=54_321, group=54_321,
        extra_groups=[], capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = "set HOME to a folder of this user" if user else "put PostgreSQL's user into OOTBOT_DATABASE_URL"
    assert said in done.stdout


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")
@POSTGRES
async def test_a_pooler_in_transaction_mode_serves_many_at_once(database_url, clock):
    with pooler(database_url) as through:
        async with opened(through, clock) as store, opened(through, clock) as other:

            async def work(number):
                chosen = (store, other)[number % 2]
                await keep(chosen, f"{number}")
                async with chosen.read() as tx:
                    found = [
                        row["name"] async for part in tx.slices(sa.select(secret), size=1) for row in part
                    ]
                assert f"{number}" in found
                await tx_upsert(chosen, number)

            await asyncio.gather(*map(work, range(20)))
            assert {f"{number}" for number in range(20)} <= set(await names(store))


async def tx_upsert(store, number):
    rows = [{"name": f"{number}", "value": b"y"}, {"name": f"{number}b", "value": b"y"}]
    async with store.transaction() as tx:
        await tx.upsert(secret, rows, replaced=["value"], index=("name",))


class Network:
    """Stands between the bot and its PostgreSQL, and swallows what goes over the connections it is told."""

    def __init__(self, url):
        self._path = f"{url.query['host']}/.s.PGSQL.5432"
        self._swallowed: set[int] = set()
        self._connections = 0
        self.passing: set[asyncio.Task] = set()

    def swallow(self):
        """Let nothing through any more on what is there."""
        self._swallowed |= set(range(self._connections))

    async def pass_on(self, reader, writer):
        """One connection."""
        number, self._connections = self._connections, self._connections + 1
        self.passing.add(asyncio.current_task())
        to_reader, to_writer = await asyncio.open_unix_connection(self._path)
        await asyncio.gather(self._copy(number, reader, to_writer), self._copy(number, to_reader, writer))

    async def _copy(self, number, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if number not in self._swallowed:
                    writer.write(data)
                    await writer.drain()
        writer.close()


@POSTGRES
async def test_one_refusal_and_all_is_well_again(database_url, clock, monkeypatch):
    monkeypatch.setattr(intake, "ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(postgres, "LISTEN_ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(postgres, "CHECK_EVERY", 0.5)
    monkeypatch.setattr(postgres, "LISTEN_WAITS", (0.1, 0.1))
    url = sa.make_url(database_url)
    network = Network(url)
    server = await asyncio.start_server(network.pass_on, "127.0.0.1", 0)
    _, port = server.sockets[0].getsockname()
    through = url.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
    async with (
        opened(through, clock) as store,
        opened(database_url, clock) as other,
        opened_intake(store) as door,
        opened_intake(other) as next_door,
    ):
        listening = asyncio.create_task(postgres.listen_for_work(store))

        async def look():
            async with store.read() as tx:
                await tx.run(sa.text("SELECT pg_sleep(0.1)"))

        await asyncio.gather(*(look() for _ in range(6)))  # so many connections are there
        network.swallow()
        with pytest.raises(StoreUnavailable, match=r"no answer for 0\.5 s"):
            await door.put(Incoming(guid="1", event="star", body=b"{}"))
        for number in range(8):
            assert await door.put(Incoming(guid=f"then {number}", event="star", body=b"{}"))
        await asyncio.sleep(2)
        store.work_waiting.clear()
        for number in itertools.count():  # until it hears again
            await next_door.put(Incoming(guid=f"elsewhere {number}", event="star", body=b"{}"))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(store.work_waiting.wait(), 1)
                break
            assert number < PATIENCE
        assert store._engine.pool.checkedout() == 1
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert store._engine.pool.checkedout() == 0
    server.close()
    await asyncio.wait_for(asyncio.gather(*network.passing), PATIENCE)

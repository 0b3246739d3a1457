"""Through what is the database spoken to? SQLAlchemy's engines, set up for SQLite and for PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bot.store import hearing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

T = TypeVar("T")
# PostgreSQL otherwise shows every statement another moment
SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
# KB; each connection fills its cache over hours, scattered among everything else: by default 2 MB of the database
SQLITE_CACHE = 512
SQLITE_CACHE_LARGE = 2000  # where many deliveries are stored at once, and where pages look through many rows


def driver(url: str) -> str:
    """Return the URL with the asynchronous driver of its database."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+asyncpg://" + url.removeprefix(scheme)
    return url.replace("sqlite://", "sqlite+aiosqlite://", 1) if url.startswith("sqlite://") else url


def make(url: sa.URL, busy_timeout: float, lost_after: float) -> AsyncEngine:
    """Return what connects to the database; `busy_timeout`: seconds SQLite waits for another process.

    `lost_after`: seconds without a word from us after which PostgreSQL ends a transaction.
    """
    engine = create_async_engine(url, **_options(url, busy_timeout))
    return _prepared(engine) if _is_sqlite(url) else _bounded(_living(engine), lost_after)


def reading(engine: AsyncEngine) -> AsyncEngine:
    """Return the engine for one consistent snapshot at a time, in which nothing is written."""
    snapshot = {} if _is_sqlite(engine.url) else SNAPSHOT
    return engine.execution_options(ootbot_read=True, **snapshot)


def beside(url: sa.URL, busy_timeout: float) -> AsyncEngine:
    """Return what reads the database in another event loop, whose thread may wait for it in place.

    SQLite's asynchronous driver hands every statement to one more thread and is called back, which takes longer than
    most of our statements.
    """
    if not _is_sqlite(url):
        # nobody else uses these, so that only asking tells which the server has closed meanwhile
        return reading(_living(create_async_engine(url, **_options(url, busy_timeout)), asked=True))
    engine = sa.create_engine(url.set(drivername="sqlite"), **_options(url, busy_timeout))
    inline = InlineEngine(_prepared(engine, SQLITE_CACHE_LARGE).execution_options(ootbot_read=True))
    return cast("AsyncEngine", inline)  # it is one as far as reading goes


class InlineEngine:
    """SQLite in the thread that asks: what `Store.read` needs of an engine."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[InlineConnection]:
        """Give out a connection; undone at the end."""
        with self._engine.connect() as conn:
            yield InlineConnection(conn)

    async def dispose(self) -> None:
        """Close every connection."""
        self._engine.dispose()


class InlineConnection:
    """What a transaction that only reads needs of a connection."""

    def __init__(self, conn: sa.Connection) -> None:
        self._conn = conn

    async def execute(self, statement: Any, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement."""
        return self._conn.execute(statement, parameters)

    async def stream(self, statement: Any) -> InlineResult:
        """Execute one statement whose rows are read few at a time."""
        return InlineResult(self._conn.execute(statement))

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` finds out with the connection itself."""
        return work(self._conn)


class InlineResult:
    """Rows that are read few at a time: what `Transaction.slices` needs of a result."""

    def __init__(self, result: sa.CursorResult[Any]) -> None:
        self._result = result

    def keys(self) -> Iterable[str]:
        """Return the columns' names."""
        return self._result.keys()

    async def partitions(self) -> AsyncIterator[Sequence[sa.Row[Any]]]:
        """Yield the rows, as many at a time as the statement says."""
        for part in self._result.partitions():
            yield part


def prepare_sqlite(connection: Any, cache: int = SQLITE_CACHE) -> None:
    """Set up one connection of SQLite's driver, which may keep `cache` KB of the database in memory."""
    connection.isolation_level = None  # transactions begin where _begin_sqlite says, nowhere else
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{cache}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    reads = connection.get_execution_options().get("ootbot_read")
    # a transaction that reads first and writes later would fail at once where another wrote in between
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _prepared(engine: Any, cache: int = SQLITE_CACHE) -> Any:
    target = getattr(engine, "sync_engine", engine)
    sa.event.listen(target, "connect", lambda connection, _record: prepare_sqlite(connection, cache))
    sa.event.listen(target, "begin", _begin_sqlite)
    return engine


def _living(engine: AsyncEngine, *, asked: bool = False) -> AsyncEngine:
    """Have nobody get a connection that has ended since it was last used, and nobody wait for the end of one.

    Where the server is `asked` it has little time for that, and none for the end: it may be mute.
    """

    def look(connection: Any, _record: object, _proxy: object) -> None:
        if connection.driver_connection.is_closed():
            raise sa.exc.DisconnectionError
        if asked:
            late = asyncio.get_running_loop().call_later(
                hearing.GREETING, connection.driver_connection.terminate
            )
            try:
                connection.ping()
            except (connection.dbapi.Error, OSError) as error:
                raise sa.exc.DisconnectionError from error
            finally:
                late.cancel()

    def hang_up(connection: Any, _record: object) -> None:
        connection.driver_connection.terminate()

    sa.event.listen(engine.sync_engine, "checkout", look)
    sa.event.listen(engine.sync_engine, "close", hang_up)
    return engine


def _bounded(engine: AsyncEngine, lost_after: float) -> AsyncEngine:
    """Have PostgreSQL end what a process leaves open that is frozen, or whose machine is gone.

    It notices neither by itself for two hours, and the locks would keep every other process waiting.
    """
    limit = f"SELECT set_config('idle_in_transaction_session_timeout', '{round(lost_after * 1000)}', false)"

    def set_limit(connection: Any, _record: object) -> None:
        # no option of the connection: PgBouncer knows few
        cursor = connection.cursor()
        cursor.execute(limit)
        cursor.close()
        connection.commit()

    sa.event.listen(engine.sync_engine, "connect", set_limit)
    return engine


def _options(url: sa.URL, busy_timeout: float) -> dict[str, Any]:
    json = {"json_serializer": _to_json, "json_deserializer": msgspec.json.decode}
    if _is_sqlite(url):
        # each keeps what it has read of the database: few stay open, and the last one used goes first
        few = {"pool_size": 4, "max_overflow": 12, "pool_use_lifo": True}
        return json | few | {"connect_args": {"timeout": busy_timeout}}
    return json | {
        "pool_size": 10,
        "max_overflow": 10,
        "pool_timeout": 5,
        "connect_args": {"timeout": hearing.CONNECT},
    }


def _is_sqlite(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

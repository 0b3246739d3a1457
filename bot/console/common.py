"""What commands share: loading settings, reporting errors, an event loop, one use of the database."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from bot.core import log_output
from bot.core.errors import GiveUp, Misconfigured, OotbotError, in_words
from bot.core.feature import load_each
from bot.core.settings_loading import load
from bot.features import FEATURES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction

T = TypeVar("T")

PATH, LET_IN = "check the path: its folder must exist", "give this user write permission there"
NEXT = {  # what to do about a file the system refuses
    errno.ENOENT: PATH,
    errno.ENOTDIR: PATH,
    errno.EEXIST: "nothing is replaced: move it away, or choose another path",
    errno.EACCES: LET_IN,
    errno.EPERM: LET_IN,
    errno.EROFS: LET_IN,
    errno.ENOSPC: "free space on its disk",
}
SETTINGS_NEXT = "docs/settings.md lists every option; `ootbot init` writes those that are required"

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="TOML, or lines as in ootbot.env; default: ootbot.toml if there.",
)


def features() -> Features:
    """Return the capabilities of this command line: those it was made with."""
    context = click.get_current_context(silent=True)
    listed: Features = (
        FEATURES if context is None or context.find_root().obj is None else context.find_root().obj
    )
    return listed


def feature_settings() -> tuple[type, ...]:
    """Return the classes of the capabilities' options."""
    return tuple(load_each(features(), "settings"))


def load_settings(config: Path | None) -> Settings:
    """Read the settings and set up logging; exits with 2 and one line for everything that is wrong."""
    try:
        chosen, warnings = load(os.environ, config, features=feature_settings())
    except Misconfigured as error:
        refuse(error, SETTINGS_NEXT)
    if problems := [
        problem for find in load_each(features(), "check_settings") for problem in find(chosen, features())
    ]:
        refuse(Misconfigured(problems), SETTINGS_NEXT)
    for warning in warnings:
        click.echo(f"ootbot: warning: {warning}", err=True)
    log_output.configure(fmt=chosen.log_format, level=chosen.log_level)
    return chosen


def run_work(work: Coroutine[None, None, T]) -> T:
    """Run `work`, on uvloop if there is one, and return its result; our errors become one line and exit code 1.

    Wrong settings are exit code 2.
    """
    try:
        import uvloop  # noqa: PLC0415 - not there on every platform
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        with runner:
            return runner.run(work)
    except Misconfigured as error:
        refuse(error)
    except (OotbotError, OSError) as error:
        click.echo(f"ootbot: {_in_words(error)}", err=True)
        sys.exit(1)


def require_free(port: int) -> None:
    """Exit with 1 and one line where a program listens on this port of loopback already; 0 is always free."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            todo = "stop the program that listens there, or choose another port with --port"
            click.echo(f"ootbot: cannot listen on 127.0.0.1:{port}: {in_words(error)}; {todo}", err=True)
            sys.exit(1)


def refuse(error: Misconfigured, *more: str) -> NoReturn:
    """Print every problem, one line each, and exit with 2."""
    for problem in (*error.problems, *more):
        click.echo(f"ootbot: {problem}", err=True)
    sys.exit(2)


def read_database(settings: Settings, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run `work` in a reading transaction and return its result; a missing database is an error."""

    async def whole() -> T:
        file = settings.data_dir / "ootbot.db"
        if settings.database_url is None and not file.exists():
            raise GiveUp(f"there is no database at {file}: has the bot run here?")
        async with _opened(settings) as store, store.read() as tx:
            return await work(tx)

    return run_work(whole())


def change_database(settings: Settings, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run `work` in a transaction and return its result, once committed."""

    async def whole() -> T:
        if settings.database_url is None:
            settings.data_dir.mkdir(parents=True, exist_ok=True)
        async with _opened(settings) as store, store.transaction() as tx:
            return await work(tx)

    return run_work(whole())


def _in_words(error: Exception) -> str:
    """Describe an error; for a file with the next step, which the system does not name."""
    if not isinstance(error, OSError):
        return str(error)
    todo = NEXT.get(error.errno or 0) if error.filename is not None else None
    return "; ".join(filter(None, (in_words(error), todo)))


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    from bot.core.clock import SystemClock  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.database import make_store  # noqa: PLC0415 - see above

    store = make_store(settings.database, clock=SystemClock(), features=features(), settings=settings)
    try:
        await store.open()
        yield store
    finally:
        await store.close()

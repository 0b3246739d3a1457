"""What tasks that collect share: the way to other hosts, the parser children, a folder for files in between."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import time
from typing import TYPE_CHECKING

from bot.ci.collect.parser_pool import ParserPool
from bot.ci.collect.settings import CollectSettings
from bot.core.resources import Resource
from bot.github.download import Downloads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bot.context import Context

LEAST_FREE = 2 * 1024 * 1024 * 1024  # bytes on DATA_DIR's disk: below, deliveries need what is left
STALE = 3600  # seconds after which a file in between is left from a crash


class Workspace:
    """Downloads and parser children of one process, and its temporary files."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self.downloads = Downloads(
            api_url=settings.github_api_url, own_port=settings.port, proxy=settings.proxy
        )
        self.parsers = ParserPool(settings.of(CollectSettings).ci_workers)
        self._folder = settings.data_dir / "tmp"
        self._data_dir = settings.data_dir
        self._cleared = False

    @contextlib.asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """Yield an empty folder that is deleted afterwards."""
        made = self._folder / secrets.token_hex(8)
        await asyncio.to_thread(self._make, made)
        try:
            yield made
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    def disk_full(self) -> bool:
        """Whether there is too little disk space to collect anything."""
        try:
            return shutil.disk_usage(self._data_dir).free < LEAST_FREE
        except OSError:
            return True

    async def close(self) -> None:
        """End the children and close the connections."""
        await self.parsers.close()
        await self.downloads.close()

    def _make(self, folder: Path) -> None:
        folder.mkdir(parents=True, mode=0o700)
        if self._cleared:
            return
        self._cleared = True
        for left in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if left.stat().st_mtime < time.time() - STALE:
                    shutil.rmtree(left, ignore_errors=True)


WORKSPACE: Resource[Workspace] = Resource("workspace", Workspace)

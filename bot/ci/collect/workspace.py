"""What tasks that collect share: the way to other hosts, the parser children, a folder for files in between."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING

from bot.ci.collect.parser_pool import ParserPool
from bot.ci.collect.parser_turns import Shares
from bot.ci.collect.process_folder import ProcessFolder
from bot.ci.collect.settings import CollectSettings
from bot.core.resources import Resource
from bot.github.download import Downloads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bot.context import Context

LEAST_FREE = 2 * 1024 * 1024 * 1024  # bytes on DATA_DIR's disk: below, deliveries need what is left


class Workspace:
    """Downloads and parser children of one process, and its temporary files."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self.downloads = Downloads(
            api_url=settings.github_api_url, own_port=settings.port, proxy=settings.proxy
        )
        workers = settings.of(CollectSettings).ci_workers
        self.parsers = ParserPool(workers)
        self.shares = Shares(context.clock, workers)  # of the parsers' time, by repository
        self._folders = ProcessFolder(settings.data_dir / "tmp")
        self._data_dir = settings.data_dir

    @contextlib.asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """Yield an empty folder that is deleted afterwards."""
        made = await asyncio.to_thread(self._folders.make)
        try:
            yield made
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    async def delete_left_folders(self) -> None:
        """Delete the temporary files of processes that were killed."""
        await asyncio.to_thread(self._folders.delete_left)

    def disk_full(self) -> bool:
        """Whether there is too little disk space to collect anything."""
        try:
            return shutil.disk_usage(self._data_dir).free < LEAST_FREE
        except OSError:
            return True

    async def close(self) -> None:
        """End the children, close the connections and delete the temporary files."""
        await self.parsers.close()
        await self.downloads.close()
        await asyncio.to_thread(self._folders.close)


WORKSPACE: Resource[Workspace] = Resource("workspace", Workspace)

"""Lines of `ootbot doctor` about collecting: whose CI, where blobs go, the parser child, the permission to read."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bot.core.errors import GitHubRefused, RetryLater, StoreUnavailable
from bot.core.feature import Finding, error, ok, warning
from bot.evidence.collect import blobs
from bot.evidence.collect.parse.contract import Request
from bot.evidence.collect.parser_pool import LEAST_FREE, ParserPool
from bot.evidence.collect.remote_blobs import BlobsUnavailable, RemoteBlobs
from bot.jobs import collection
from bot.jobs.settings import BACKENDS, UPSTREAM, CollectSettings, is_remote
from bot.oot.allowlist import versions as allowlists

if TYPE_CHECKING:
    from bot.ops.doctor import Target

GIB = 1024**3
MOST_ASKED = 50  # repositories


async def check_collecting(target: Target) -> list[Finding]:
    """Check what collecting needs; if nothing is collected, only say so."""
    if not await target.has_database():
        return []  # another check says so
    try:
        async with target.store.read() as tx:
            listed = await allowlists.read_in_force(tx)
    except StoreUnavailable as problem:
        return [warning("collecting", str(problem)[:200], "start `ootbot serve` once: it makes the tables")]
    chosen, words = target.settings.of(CollectSettings).ci, collection.describe_scope(target.settings)
    if not chosen:
        return [ok("collecting", words)]
    repos = list(target.settings.upstream_repo) if UPSTREAM in chosen else []
    if BACKENDS in chosen and listed:
        repos += [entry.repo for entry in listed.entries if entry.level >= collection.LEAST_LEVEL]
    return [
        ok("collecting", words),
        await _place(target),
        _disk(target),
        _patterns(),
        await _child(),
        *[await _permission(target, repo) for repo in repos[:MOST_ASKED]],
    ]


async def _place(target: Target) -> Finding:
    where = blobs.blobs_place(target.settings)
    return await _bucket(where) if is_remote(where) else _folder(where)


def _folder(where: str) -> Finding:
    try:
        Path(where).mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=where):
            pass
    except OSError as problem:
        return error(
            "blobs",
            f"{where} cannot be written: {problem.strerror}",
            "let this user write there, or set BLOBS",
        )
    return ok("blobs", f"in {where}")


async def _bucket(where: str) -> Finding:
    try:
        await RemoteBlobs(where).check()
    except BlobsUnavailable as problem:
        todo = "check the bucket's name and the credentials, region and endpoint in the environment: docs/collecting.md"
        return error("blobs", str(problem), todo)
    return ok("blobs", f"in {where}")


def _disk(target: Target) -> Finding:
    try:
        free = shutil.disk_usage(target.settings.data_dir).free
    except OSError as problem:
        return error("room for collecting", str(problem), "check DATA_DIR")
    detail = f"{free / GIB:.1f} GiB free in DATA_DIR"
    if free < LEAST_FREE:
        return warning("room for collecting", f"{detail}: below 2 GiB nothing is collected", "make room")
    return ok("room for collecting", detail)


def _patterns() -> Finding:
    if importlib.util.find_spec("re2") is None:
        return error(
            "google-re2", "it is not installed", "install ootbot with its dependencies; see docs/install.md"
        )
    return ok("google-re2", "can be imported")


async def _child() -> Finding:
    """Start a parser child; a request for an unknown parser shows that it answers."""
    pool = ParserPool(1, wall=30.0)
    with tempfile.TemporaryDirectory() as folder:
        answer = str(Path(folder) / "answer")
        request = Request(parser="builtins:bool", path=folder, blob=answer, answer=answer, most_written=1000)
        reply = await pool.parse(request)
    await pool.close()
    if reply.state != "parsed":
        return error("parser child", reply.reason[:200], "look at the limits of this user and container")
    return ok("parser child", "starts and answers")


async def _permission(target: Target, repo: str) -> Finding:
    name = f"actions of {repo}"
    try:
        await target.app_for(repo).tokens.get(repo, {"actions": "read"})
    except GitHubRefused as problem:
        todo = f"install the App on {repo} and grant actions: read"
        return warning(name, f"they may not be read: {problem.message[:150]}", todo)
    except RetryLater as problem:
        return warning(name, str(problem)[:200], "try again")
    return ok(name, "may be read")

"""The lists that CI fetches, as large as PyTorch's, from `ootbot serve`: milliseconds of each when it is warm.

Started as `served_lists.py --files N --requests N`: that many files of tests in each of 300 jobs' lists of times. The
requests ask for compressed answers, as curl --compressed and Python's requests do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import aiohttp
import sqlalchemy as sa
import structlog

from benchmarks.support.load import SECRET
from benchmarks.support.serve import NOBODY, UPSTREAM, Bot, key
from bot.app import make_context
from bot.core.settings import Settings
from bot.evidence.disabled import lists
from bot.evidence.disabled.tables import ci_disabling
from bot.ingest.tables import records, repository_name
from bot.job_reports.test_lists import times
from bot.oot.allowlist.versions import refresh

BACKEND = "lab/npu"
ALLOWLIST = f"L3: {{npu: {BACKEND}}}\n"
REPOSITORIES = {1: UPSTREAM, 2: BACKEND}
JOBS = 60  # base names, each with
CONFIGS = 5
CLASSES = 3  # of a file
DISABLED, SLOW = 2_000, 1_500
WARM = 3  # requests that are not counted
SHARDED = [f"inductor/test_module_{number}" for number in range(0, 300, 2)]


def measured(base: str) -> dict[str, tuple[str, str, list[str] | None]]:
    """Name -> method, address and body of what is asked for."""
    found: dict[str, tuple[str, str, list[str] | None]] = {
        name: ("GET", f"{base}/{name}.json", None)
        for name in ("disabled-tests-condensed", "slow-tests", "test-times", "test-class-times")
    }
    shards = f"{base}/shards.json?n=8&base=job_1&config=config_1"
    return found | {
        "disabled-tests of a backend": ("GET", f"{base}/disabled-tests-condensed.json?backend={BACKEND}", None),
        "disabled-tests of a pull request": ("GET", f"{base}/disabled-tests-condensed.json?pr=8", None),
        "disabled-tests of one that closes some": ("GET", f"{base}/disabled-tests-condensed.json?pr=7", None),
        "shards of all files": ("GET", shards, None),
        "shards of 150 files": ("POST", shards, SHARDED),
    }  # fmt: skip


async def fill(folder: Path, files: int) -> None:
    """Store what the tasks that make lists would have stored."""
    (folder / "allowlist.yml").write_text(ALLOWLIST)
    settings = Settings(
        app_id=1, webhook_secret=(SECRET,), private_key=key(), upstream_repo=(UPSTREAM,),
        github_api_url=NOBODY, allowlist=str(folder / "allowlist.yml"), data_dir=folder,
    )  # fmt: skip
    issues = [
        {"repository_id": 1, "number": number, "kind": "test", "unstable": False, "title": f"DISABLED test_{number}",
         "author": "octocat", "url": f"https://github.com/{UPSTREAM}/issues/{number}", "listed": True,
         "entries": [(f"test_operator_{number}_float32 (__main__.TestOps{number % 50})",
                      ["linux", "npu"] if number % 3 else [])],
         "problems": [], "created_at": 1, "updated_at": 1}
        for number in range(DISABLED)
    ]  # fmt: skip
    slow = {f"test_slow_{number} (__main__.TestOps)": 60 + number / 7 for number in range(SLOW)}
    by_file: times.Times = {
        f"job_{job}": {
            f"config_{config}": {
                f"inductor/test_module_{file}": round(1 + file * 1.7 + job, 3) for file in range(files)
            }
            for config in range(CONFIGS)
        }
        for job in range(JOBS)
    }
    by_class = {
        job: {
            config: {
                f"{file}\0TestModule{one}": seconds
                for file, seconds in found.items()
                for one in range(CLASSES)
            }
            for config, found in configs.items()
        }
        for job, configs in by_file.items()
    }
    made = {
        "disabled-tests-condensed": lists.disabled_tests(issues),  # type: ignore[arg-type] # rows as they are stored
        "slow-tests": slow,
        "test-times": times.with_defaults(by_file),
        "test-class-times": times.by_file_and_class(times.with_defaults(by_class)),
    }
    async with make_context(settings) as context:
        await refresh(context)
        async with context.store.transaction() as tx:
            for identifier, name in REPOSITORIES.items():
                known = {"repository_id": identifier, "id": identifier, "repo": name, "full_name": name,
                         "private": False, "default_branch": "main", "received_at": 1, "merge_state": {}}  # fmt: skip
                await tx.run(sa.insert(records["repository"]).values(known))
                await tx.run(sa.insert(repository_name).values(repository_id=identifier, name=name))
            await tx.run(sa.insert(ci_disabling), issues)
            # the issues themselves, whose authors nobody can be asked about: the lists stay as they are
            await tx.run(sa.insert(records["issue"]), [
                {"repository_id": 1, "repo": UPSTREAM, "id": one["number"], "number": one["number"], "state": "open",
                 "title": one["title"], "user_login": one["author"], "received_at": 1, "merge_state": {}}
                for one in issues
            ])  # fmt: skip
            pulls = [
                {"repository_id": 1, "repo": UPSTREAM, "id": number, "number": number, "state": "open", "body": body,
                 "received_at": 1, "merge_state": {}}
                for number, body in ((7, "Fixes #12, closes #13"), (8, "Fixes #999999"))
            ]  # fmt: skip
            await tx.run(sa.insert(records["pull_request"]), pulls)
            for name, content in made.items():
                page = await asyncio.to_thread(lists.seal_list, content)
                await lists.store_list(tx, 1, name, page)


async def ask(server: Bot, requests: int) -> dict:
    """Ask for each in turn; returns milliseconds and sizes, and milliseconds of answers that nothing is new.

    Processor time is that of all the server's processes: on a machine with other work it says more than the clock.
    """
    base = server.url
    found: dict = {}
    async with aiohttp.ClientSession(auto_decompress=False) as http:
        for name, (method, address, body) in measured(f"/api/ci/{UPSTREAM}").items():
            tag, took, again = "", [], []
            busy = 0.0
            for number in range(requests + WARM):
                if number == WARM:
                    busy = server.cpu()
                began = time.perf_counter()
                async with http.request(method, base + address, json=body) as answer:
                    content = await answer.read()
                    tag = answer.headers.get("ETag", "")
                if answer.status != 200:
                    raise RuntimeError(f"{address}: {answer.status} {content[:300]!r}")
                if number >= WARM:
                    took.append((time.perf_counter() - began) * 1000)
            worked = (server.cpu() - busy) * 1000 / requests
            for _ in range(requests if tag else 0):
                began = time.perf_counter()
                async with http.get(base + address, headers={"If-None-Match": tag}) as answer:
                    await answer.read()
                if answer.status != 304:
                    raise RuntimeError(f"{address}: {answer.status} for its own ETag")
                again.append((time.perf_counter() - began) * 1000)
            found[name] = {
                "kb": round(len(content) / 1024, 1),
                **percentiles(took),
                "cpu_ms": round(worked, 1),
            }
            if again:
                found[name] |= {f"unchanged_{one}": value for one, value in percentiles(again).items()}
    return found


def percentiles(took: list[float]) -> dict:
    ordered = sorted(took)
    at_95 = ordered[int(len(ordered) * 0.95)]
    return {"p50_ms": round(statistics.median(ordered), 2), "p95_ms": round(at_95, 2)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--requests", type=int, default=100)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(fill(folder, options.files))
        with Bot(folder, allowlist=ALLOWLIST) as server:
            print(json.dumps(asyncio.run(ask(server, options.requests))))


if __name__ == "__main__":
    main()

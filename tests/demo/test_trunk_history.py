"""The demo's month of pushes, as the grid shows it."""

from __future__ import annotations

import asyncio

from bot.demo import buildkite, environment, participants, trunk_history

PAGE = f"/hud/{participants.UPSTREAM}/main"
DOCS = "docs / build-docs (python)"
OPERATORS = "buildkite / fastcheck / :npu: Operators"
BACKEND = f"backends / {participants.RISCV} / Nightly / test (vector)"


async def test_the_grid_shows_a_breakage_flakes_an_outage_and_a_backend_that_broke():
    async with environment.running() as env:
        await env.ready()
        await trunk_history.send_history(env)
        columns = await settled(env)
        async with env.http.get(env.bot.url + PAGE) as answer:
            page = await answer.text()
        async with env.http.get(f"{env.bot.url}/{participants.UPSTREAM}/queue") as answer:
            queue = await answer.text()
    mac = columns["trunk / macos-py3-arm64 / test (default)"]
    assert mac[20:27] == "OXXXXXO"  # newest first: 5 pushes, then the one that reverts
    assert columns["pull / linux-jammy-cuda12.8-py3.10 / test (default)"].count("F") == 2
    assert columns[OPERATORS][:10] == "?XXXOOOFOO"
    assert columns["buildkite / fastcheck / :books: Docs"][4:7] == "OAO"
    outage = [cells[12] for cells in columns.values()]
    assert outage.count("X") == 11
    assert columns[BACKEND].startswith(f" XXX{' ' * 14}O")
    assert "watching backend" in page
    assert "queue=npu: 1 agent connected; 1 lost" in queue
    assert "many failed at once" in page
    assert "?" in "".join(cells[0] for cells in columns.values())


async def settled(env):
    """Each column's characters, newest first, once everything has been handled."""
    async with asyncio.timeout(60):
        while True:
            async with env.http.get(f"{env.bot.url}/api/ci{PAGE}") as answer:
                body = await answer.json()
            if answer.ok and len(body["lines"]) >= trunk_history.PUSHES:
                found = {
                    one["name"]: "".join(
                        line["cells"].get(str(at), {"c": " "})["c"] for line in body["lines"]
                    )
                    for at, one in enumerate(body["columns"])
                }
                newest = found.get(DOCS, " ")[: trunk_history.PUSHES]
                newest += found.get(OPERATORS, " ")[: buildkite.PUSHES]
                if " " not in newest and BACKEND in found:
                    return found
            await asyncio.sleep(0.1)

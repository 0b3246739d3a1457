"""Long outages, on simulated time: GitHub gone for hours, the bot away for nearly as long as GitHub's log goes back.

One clock drives the bot, GitHub and the backends, so that days pass in seconds; the rest is as everywhere.
"""

from __future__ import annotations

import contextlib

from bot.demo.github.auth import private_key
from tests import harness
from tests.chaos.scenario import Scenario
from tests.harness import L1, L2, L3, L4, UPSTREAM

HOUR = 3600.0  # seconds
NOWHERE = "http://127.0.0.1:9/nobody"
LABEL = "ciflow/oot/npu"
WRITES = {"POST", "PATCH"}
WITHIN = 120.0  # seconds from GitHub's return to the first write
STEP = 5.0  # seconds: the timetable's tasks run between waits
RATIO = 1.3  # calls made for each that was needed
PULLS = (1, 3, 12)
MISSED = 12  # pull requests while the bot is away
EACH = 7  # writes a new head needs: four dispatches, gate and two checks
ROUND = 660.0  # seconds in which each periodic task runs once more


@contextlib.asynccontextmanager
async def living(trial, **settings):
    """A bot on a clock of its own, with a GitHub, an issuer and four backends."""
    clock = harness.ManualClock()
    github, issuer = harness.SimulatedGitHub(clock=clock), harness.Issuer(clock=clock)
    await github.start()
    await issuer.start()
    github.app = github.register_app(
        webhook_url=None, webhook_secret=harness.SECRET, private_key_pem=private_key()
    )
    for name in (UPSTREAM, L1, L2, L3, L4):
        github.add_repo(name)
    chosen = harness.make_settings(
        github=github, issuer=issuer, app=github.app, folder=trial.folder,
        database_url=trial.database_url, **settings,
    )  # fmt: skip
    try:
        async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
            yield bot
    finally:
        await issuer.stop()
        await github.stop()


async def github_away(trial):
    """GitHub answers nothing for hours while its deliveries and the backends' reports come in."""
    for _ in range(trial.n):
        trial.folder = trial.folder.parent / f"{trial.folder.name}-{len(trial.seconds)}"
        trial.folder.mkdir(exist_ok=True)
        async with living(trial, writes_per_min=60) as bot:
            await _away(trial, bot)


async def _away(trial, bot):
    github, hours, number = bot.github, trial.chance.uniform(1, 20), trial.chance.choice(PULLS)
    pulls = [await github.open_pull(UPSTREAM, labels=[LABEL]) for _ in range(number)]
    await bot.wait(300)
    fault = github.faults.add(method="GET|POST|PATCH", status=502, times=10**9)
    for pull in pulls:
        await github.push_commit(pull)
        await bot.wait(hours * HOUR / number)
    trial.say(
        f"{hours:.0f} hours and {number} pull requests without GitHub, {sum(one.faulted for one in github.calls)} calls in vain"
    )
    github.faults.waiting.remove(fault)
    returned, before = bot.clock.now(), len(github.calls)
    for _ in range(round(WITHIN / STEP)):
        await bot.wait(STEP)
    written = [one for one in github.calls[before:] if wrote(one)]
    trial.expect(written, f"nothing written within {WITHIN:.0f} s after {hours:.1f} hours")
    if written:
        trial.seconds.append((written[0].at - returned) / 1000)
        first = [one for one in written if "/check-runs" in one.path][:1]
        trial.expect(all(one.body["name"] == "oot / gate" for one in first), "the first check is no gate")
    await bot.wait(HOUR)
    _complete(trial, bot, pulls)
    made = sum(wrote(one) for one in github.calls[before:])
    needed = EACH * len(pulls)
    trial.counts["writes made"] += made
    trial.counts["writes needed"] += needed
    trial.expect(made <= RATIO * needed, f"{made} writes where {needed} were needed")


def wrote(call):
    """Whether a call wrote something to a repository."""
    return call.method in WRITES and "/repos/" in call.path and call.status in {200, 201, 204}


def _complete(trial, bot, pulls):
    """Every head was dispatched once to each backend, and has its checks."""
    for pull in pulls:
        told = [
            one.repo.full_name
            for one in bot.github.dispatches
            if one.client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
        ]
        trial.same(sorted(told), sorted((L1, L2, L3, L4)), f"dispatches of #{pull.number}")
        names = sorted(bot.checks(UPSTREAM, pull.head_sha))
        trial.same(names, ["oot / gate", "oot / npu", "oot / tpu"], f"checks of #{pull.number}")
    runs = [run.external_id for run in bot.github.check_runs_all(UPSTREAM)]
    trial.same(len(runs), len(set(runs)), "check runs made twice")


async def bot_away(trial):
    """Nothing reaches the bot, nor does it run, for 71 hours; GitHub's log goes back 72."""
    for _ in range(trial.n):
        trial.folder = trial.folder.parent / f"{trial.folder.name}-{len(trial.seconds)}"
        trial.folder.mkdir(exist_ok=True)
        async with living(trial) as bot:
            await _recovered(trial, bot)


async def _recovered(trial, bot):
    github = bot.github
    await bot.wait(ROUND)
    address, bot.app.webhook_url = bot.app.webhook_url, NOWHERE
    pulls, began = [], bot.clock.now()
    for number in range(MISSED):
        pulls.append(await github.open_pull(UPSTREAM, labels=[LABEL]))
        run = await github.start_run(L4, name="CI", event="push")
        job = await github.start_job(run, "build")
        await github.finish_job(job, "success")
        await github.finish_run(run, "failure" if number % 3 else "success")
        bot.clock.advance(71 * HOUR / MISSED)
    bot.clock.at = began + round(71 * HOUR * 1000)
    bot.app.webhook_url = address
    missed = {one.guid for one in github.deliveries if not one.ok}
    returned = bot.clock.now()
    rounds = 0
    while rounds < 12 and not missed <= {row["guid"] for row in await bot.rows("delivery")}:
        rounds += 1
        await bot.wait(ROUND / 4)
    trial.seconds.append((bot.clock.now() - returned) / 1000)
    trial.say(f"{len(missed)} deliveries missed in 71 hours, {rounds} looks until all were there")
    stored = {row["guid"] for row in await bot.rows("delivery")}
    trial.same(sorted(missed - stored)[:5], [], "deliveries that were not recovered")
    trial.counts["deliveries missed and recovered"] += len(missed & stored)
    await bot.wait(HOUR)
    _complete(trial, bot, pulls)
    runs = {run.id: run.conclusion for run in github.state.repo(L4).runs.values()}
    rows = {row["id"]: row["conclusion"] for row in await bot.rows("workflow_run")}
    trial.same(rows, runs, "workflow runs")
    dead = [row["error"] for row in await bot.rows("task") if row["state"] == "dead"]
    trial.same(dead[:3], [], "tasks given up")


SCENARIOS = (
    Scenario(
        id="github-away", breaks="GitHub answers nothing for 1 to 20 hours (simulated time)", run=github_away,
        measures="GitHub's return to the first write, s", times=(2, 50),
    ),
    Scenario(
        id="bot-away", breaks="the bot is away for 71 hours (simulated time)", run=bot_away,
        measures="its return to every missed delivery stored, s", times=(2, 10),
    ),
)  # fmt: skip

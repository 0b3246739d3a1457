"""How is a trial set up? A town, a bot of its own process (or several), and a way to look into the database."""

from __future__ import annotations

import contextlib

import aiohttp

from bot.core.clock import SystemClock
from bot.database import make_store
from bot.demo.github import SimulatedGitHub
from bot.demo.github.auth import private_key
from bot.demo.issuer import Issuer
from bot.features import FEATURES
from tests.chaos.audit import Audit
from tests.chaos.bots import Kind, Nursery
from tests.chaos.simulation import ALLOWLIST, Town
from tests.harness import SECRET
from tests.process import options_for

CALLS = 1_000_000  # an hour: the town lives a day in minutes, which the usual 5,000 would end
ONE = Kind()
QUICK = {"PUBLISH_INTERVAL": "1s", "WRITES_PER_MIN": "6000", "RATE_LIMIT_PER_MIN": "100000"}


class Stage:
    """A trial's town, its bots, and the audit that compares them."""

    def __init__(self, *, trial, town, bots, store):
        self.trial, self.town, self.bots, self.store = trial, town, bots, store
        self.github = town.github
        self.audit = Audit(trial, town, store)

    @property
    def bot(self):
        """The bot, where there is one."""
        return self.bots[0]

    async def end_well(self):
        """Let everybody come to an end, then look at everything."""
        await self.town.rest()
        await self.audit.idle()
        await self.town.rest()  # what the last writes set off
        await self.audit.idle()
        await self.audit.everything()


@contextlib.asynccontextmanager
async def town_of(trial, *, faults=None, github_clock=None):
    """A town without a bot; it looks for one at the address of the first."""
    github, issuer = SimulatedGitHub(clock=github_clock or SystemClock()), Issuer(clock=SystemClock())
    github.faults = github.webhooks._faults = faults or github.faults
    github.rate_limit.per_hour = CALLS
    await github.start()
    await issuer.start()
    github.app = github.register_app(webhook_url=None, webhook_secret=SECRET, private_key_pem=private_key())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        town = Town(github=github, issuer=issuer, http=http, address=lambda: "", chance=trial.chance)
        try:
            yield town
        finally:
            town.leave()
            with contextlib.suppress(AssertionError):
                await github.stop()
            await issuer.stop()


@contextlib.asynccontextmanager
async def staged(trial, *, kinds=(ONE,), faults=None, github_clock=None, **options):
    """A town and bots of these kinds on one database, ready to be started."""
    async with town_of(trial, faults=faults, github_clock=github_clock) as town:
        chosen = options_of(trial, town) | options
        nurseries = [Nursery(trial.folder, chosen, kind) for kind in kinds]
        url = trial.database_url or f"sqlite:///{trial.folder / 'ootbot.db'}"
        store = make_store(url, clock=SystemClock(), features=FEATURES)
        town.address = lambda: nurseries[0].url
        town.github.app.webhook_url = f"{nurseries[0].url}/api/github/webhooks"
        try:
            for one in nurseries:
                await one.open()
            yield Stage(trial=trial, town=town, bots=nurseries, store=store)
        except Exception as error:
            error.add_note("\n".join(f"the bot said: {line}" for one in nurseries for line in one.said[-10:]))
            raise
        finally:
            town.leave()
            for one in nurseries:
                await one.close()
                trial.failures += [f"the bot said: {line}" for line in one.said if trial.failures][-10:]
            await store.close()


def options_of(trial, town):
    """What `serve` needs to know in this town."""
    app = town.github.app
    options = options_for(
        trial.folder, private_key=app.private_key_pem, app_id=app.app_id,
        api_url=town.github.api_url, issuer=town.issuer,
    )  # fmt: skip
    (trial.folder / "allowlist.yml").write_text(ALLOWLIST)
    database = {"DATABASE_URL": trial.database_url} if trial.database_url else {}
    return options | QUICK | database

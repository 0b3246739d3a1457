"""A job that runs the action's script, and the bot it reports to."""

import os

import pytest
from aiohttp import web

from tests.actions.reported import ACTION, DISPATCH, Job, Service


@pytest.fixture
async def service():
    service = Service()
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_get("/token", service.token)
    app.router.add_post("/callback", service.callback)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.url = "http://127.0.0.1:{}".format(*runner.addresses[0][1:])
    yield service
    await runner.cleanup()


@pytest.fixture
def job(service, tmp_path):
    job = Job(
        tmp_path,
        {
            "PATH": os.environ["PATH"],
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-secret",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{service.url}/token?api-version=2.0",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_JOB": "report",
            "GITHUB_REPOSITORY": "org/npu",
            "GITHUB_RUN_ATTEMPT": "2",
            "GITHUB_RUN_ID": "4455",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_WORKFLOW": "Device CI",
        },
    )
    job.event({**DISPATCH, "callback_url": f"{service.url}/callback"})
    return job

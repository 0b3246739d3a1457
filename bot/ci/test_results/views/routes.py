"""The routes of test results."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from bot.ci.test_results.views import (
    backend_tests,
    failing,
    flaky_tests,
    head_json,
    head_pages,
    history,
    lost_tests,
    one_test,
    test_file,
    test_list,
)
from bot.web import html
from bot.web.view_parameters import OWNER

TEMPLATES = Path(__file__).parent / "templates"
VALUES = {"SECONDS": history.seconds, "LOSS_WORDS": lost_tests.words}  # what templates see
DIGEST = r"{digest:[0-9a-f]{16}}"


def setup(app: web.Application) -> None:
    """Add pages and JSON."""
    html.add_templates(app, TEMPLATES, values=failing.VALUES | VALUES)
    for place, (name, path) in enumerate((("Tests", "/tests"), ("Flaky", "/flaky"), ("Lost", "/tests/lost"))):
        html.add_tab(app, "tests", name, path, place=place)
    app.add_routes(
        [
            web.get(f"/{OWNER}/{{repo}}/commit/{{sha}}/tests", head_pages.commit),
            web.get(rf"/{OWNER}/{{repo}}/run/{{id:\d+}}/tests", head_pages.run),
            web.get(f"/{OWNER}/{{repo}}/test/{DIGEST}", one_test.test),
            web.get(f"/{OWNER}/{{repo}}/tests", test_list.tests),
            web.get(f"/{OWNER}/{{repo}}/tests/file/{{path:.+}}", test_file.file),
            web.get(f"/{OWNER}/{{repo}}/flaky", flaky_tests.flaky),
            web.get(f"/{OWNER}/{{repo}}/tests/lost", lost_tests.lost),
            web.get("/api/ci/lost-tests/{owner}/{repo}", lost_tests.lost_json),
            web.get("/api/ci/tests/{owner}/{repo}", test_list.tests_json),
            web.get(f"/api/ci/tests/{{owner}}/{{repo}}/{DIGEST}", one_test.test_json),
            web.get(r"/api/ci/runs/{owner}/{repo}/{id:\d+}/tests", head_json.run_json),
            web.get("/oot/{org}/{repo}/tests", backend_tests.backend),
            web.get("/api/ci/parity/{org}/{repo}", backend_tests.parity_json),
            web.get("/api/ci/compare/{owner}/{repo}", head_json.compare_json),
        ]
    )

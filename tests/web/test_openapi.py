"""Does the bot do what its OpenAPI document says? Every route described; drawn requests answered as written there."""

import asyncio
import json
from collections import defaultdict
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from bot.app import make_app, operations
from bot.features import FEATURES
from bot.web.openapi_document import OPERATION, document
from tests.harness import L4, SECRET, UPSTREAM, replace, running, sign
from tests.oot.reports.reporting import OPENED

pytestmark = pytest.mark.logic


DRAWN = 12  # requests for each door and database, two thirds of them spoilt: over 300 in all
PAGES = {
    "/{owner}/{repo}", "/{owner}/{repo}/pulls", "/search",
    "/{owner}/{repo}/logs", "/{owner}/{repo}/commit/{sha}/logs", "/{owner}/{repo}/job/{id}", "/{owner}/{repo}/job/{id}/log", "/{owner}/{repo}/job/{id}/log.txt", "/failures", "/failures/{signature}", "/{owner}/{repo}/run/{id}", "/hud", "/hud/{owner}/{repo}", "/{owner}/{repo}/metrics", "/{owner}/{repo}/reliability", "/{owner}/{repo}/queue", "/{owner}/{repo}/disabled", "/{owner}/{repo}/disabled/suggestions",
    "/{owner}/{repo}/commit/{sha}/tests", "/{owner}/{repo}/run/{id}/tests", "/{owner}/{repo}/test/{digest}", "/{owner}/{repo}/tests",
    "/{owner}/{repo}/tests/file/{path}", "/{owner}/{repo}/tests/lost", "/{owner}/{repo}/flaky", "/oot/{org}/{repo}/tests",
    "/{owner}/{repo}/job/{id}/utilization", "/{owner}/{repo}/run/{id}/utilization", "/{owner}/{repo}/utilization",
    "/{owner}/{repo}/storage", "/{owner}/{repo}/other-job/{id}", "/{owner}/{repo}/other-job/{id}/log", "/{owner}/{repo}/other-job/{id}/log.txt",
    "/{owner}/{repo}/upload/{id}", "/{owner}/{repo}/upload/{id}/log", "/{owner}/{repo}/upload/{id}/log.txt",
    "/hud/{owner}/{repo}/{branch}",  # and what they need: for people, who find the JSON behind each linked there
    "/", "/api", "/red", "/oot", "/oot/dispatches", "/oot/levels", "/oot/metrics", "/oot/{org}/{repo}", "/{owner}/{repo}/pull/{number}",
    "/oot/{org}/{repo}/pings/{id}", "/admin/ping", "/admin/notify",
    "/oot/{org}/{repo}/badge.svg", "/oot/{org}/{repo}/feed.atom", "/{owner}/{repo}/badge.svg", "/{owner}/{repo}/feed.atom",
    "/{owner}/{repo}/commit/{sha}", "/static/{name}", "/favicon.ico", "/admin", "/admin/deliveries",
    "/admin/deliveries/{guid}", "/admin/failures", "/admin/tasks", "/admin/sign-in", "/admin/sign-out",
    "/admin/tasks/{id}/retry", "/admin/tests/{owner}/{repo}/{digest}/reset",
    "/admin/deliveries/{guid}/replay", "/crcr", "/crcr/metrics", "/crcr/{org}/{repo}", "/oot/commands",
    "/{owner}/{repo}/benchmarks", "/{owner}/{repo}/benchmarks/{series}", "/{owner}/{repo}/builds", "/{owner}/{repo}/contributions",
    "/{owner}/{repo}/custom", "/{owner}/{repo}/run/{id}/ran", "/{owner}/{repo}/stable",
    "/{owner}/{repo}/bisects", "/{owner}/{repo}/bisects/{id}", "/admin/bisects", "/admin/bisects/{id}/cancel",
}  # fmt: skip
DOCUMENT = document("http://127.0.0.1", [*operations(FEATURES), OPERATION])
DOORS = defaultdict(list)  # by the beginning of their paths: a bot takes longer to start than to be asked
for _path, _methods in DOCUMENT["paths"].items():
    DOORS["/".join(_path.split("/")[:3])] += [(method, _path) for method in _methods]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def resolved(schema):
    """A schema without its reference, what stands beside it laid over."""
    if "$ref" not in schema:
        return schema
    named = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    beside = {name: value for name, value in schema.items() if name != "$ref"}
    return named | beside | {"properties": named.get("properties", {}) | beside.get("properties", {})}


def drawn(schema):
    """A strategy for what a schema allows."""
    schema = resolved(schema)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([drawn(one) for one in schema["anyOf"]])
    kinds = {
        "string": lambda: st.from_regex(schema["pattern"]) if "pattern" in schema else st.text(max_size=30),
        "integer": lambda: st.integers(schema.get("minimum", -5), schema.get("maximum", 2**40)),
        "number": lambda: st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: st.lists(drawn(schema.get("items", {})), max_size=3),
        "object": lambda: st.fixed_dictionaries(
            {name: drawn(schema["properties"][name]) for name in schema.get("required", ())},
            optional={
                name: drawn(one)
                for name, one in schema.get("properties", {}).items()
                if name not in schema.get("required", ())
            },
        ),
    }
    kind = schema.get("type")
    return kinds[kind]() if isinstance(kind, str) and kind in kinds else ANYTHING


@st.composite
def spoilt(draw, value):
    """A value of which some part is something else."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        name = draw(st.sampled_from(sorted(value)))
        if draw(st.booleans()):
            return value | {name: draw(spoilt(value[name]))}
        return {other: one for other, one in value.items() if other != name}
    return draw(ANYTHING)


@st.composite
def requests(draw, path, door):
    """Path, query, headers and body for one door."""
    parts = {"path": {}, "query": {}, "header": {}}
    for one in door.get("parameters", []):
        if one.get("required") or draw(st.booleans()):
            wild = one["in"] != "path" and not draw(st.integers(0, 3))
            value = (
                draw(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=20))
                if wild
                else draw(drawn(one["schema"]))
            )
            parts[one["in"]][one["name"]] = str(value).rstrip("\n")
    for name, value in parts["path"].items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    body = None
    if "application/json" in door.get("requestBody", {"content": {}})["content"]:
        content = door["requestBody"]["content"]["application/json"]
        body = draw(drawn(content["schema"])) if draw(st.booleans()) else content["example"]
        if draw(st.booleans()):
            body = draw(spoilt(body))
    headers = {name: "".join(filter(str.isprintable, text)) for name, text in parts["header"].items()}
    return path, parts["query"], headers, body  # no client sends control characters in a header


def authorised(bot, door, headers, raw):
    """The headers with which a caller of this door shows who it is."""
    schemes = {name for one in door["security"] for name in one}
    headers = headers | {"Content-Type": "application/json"}
    if "signature" in schemes:
        headers["X-Hub-Signature-256"] = sign(raw, SECRET)
    if "backend" in schemes:
        headers["Authorization"] = f"Bearer {bot.issuer.mint(repository=L4, run_id='4455')}"
    if "relay" in schemes:
        headers["X-OOT-Relay-Token"] = bot.context.settings.relay_token
    if "admin" in schemes:
        headers["Authorization"] = f"Bearer {bot.context.settings.admin_token}"
    return headers


def is_valid(answer, schema):
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole | schema).validate(answer)


@pytest.fixture
async def open_bot(settings, github, issuer, clock):
    """A bot with every door open and something to show behind each."""
    opened = replace(settings, relay_token="a relay token of ours", rate_limit_per_min=100_000)
    async with running(opened, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await github.open_pull(UPSTREAM, author="octocat")
        await bot.settle()
        assert await bot.report(bot.dispatch(L4), conclusion="failure") == (
            200,
            {"ok": True, "status": "completed"},
        )
        await bot.send("issues", OPENED)
        await bot.settle()
        yield bot


async def test_every_route_is_described_or_a_page(open_bot):
    app = make_app(open_bot.context)
    served = {
        (route.resource.canonical, route.method.lower()) for route in app.router.routes() if route.resource
    }
    served = {(path.rstrip("/") or "/", method) for path, method in served if method != "head"}
    described = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert {path for path, _ in served - described} == PAGES
    assert described - served == set()


async def test_the_document_is_served_and_is_valid_openapi(open_bot):
    status, told = await open_bot.get("/api/openapi.json")
    assert status == 200
    assert told["openapi"] == "3.1.0"
    assert told["paths"] == DOCUMENT["paths"]
    for name, schema in told["components"]["schemas"].items():
        assert "." not in name, "two structs have this name"
        jsonschema.Draft202012Validator.check_schema(schema)
    status, text = await open_bot.get("/api")
    assert status == 200
    assert [path for path in DOCUMENT["paths"] if path not in text] == []


@pytest.mark.parametrize("doors", DOORS.values(), ids=DOORS)
async def test_drawn_requests_are_answered_as_the_document_says(open_bot, doors):
    loop = asyncio.get_running_loop()
    for method, path in doors:
        try:
            await asyncio.to_thread(_ask, open_bot, method, path, loop)
        except BaseException as error:
            error.add_note(f"{method} {path}")
            raise


def _ask(open_bot, method, path, loop):
    """Draw requests for a door, and compare the answers with the document."""
    door = DOCUMENT["paths"][path][method]

    @settings(
        max_examples=DRAWN, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck
    )
    @given(requests(path, door))
    def ask(drawn_request):
        where, query, headers, body = drawn_request
        raw = b"" if body is None else json.dumps(body).encode()
        answering = answer(open_bot, method, where, query, authorised(open_bot, door, headers, raw), raw)
        status, kind, answered = asyncio.run_coroutine_threadsafe(answering, loop).result()
        assert status < 500, answered
        assert str(status) in door["responses"], (status, answered)
        schema = door["responses"][str(status)]["content"].get(kind)
        assert schema is not None, kind
        if kind == "application/json":
            is_valid(json.loads(answered), schema["schema"])

    ask()


async def test_no_parameter_may_be_empty_or_come_twice(open_bot):
    for path, methods in DOCUMENT["paths"].items():
        door = methods.get("get", {"security": []})
        filled = {
            "owner": "pytorch",
            "org": "org",
            "repo": "x",
            "table": "issue",
            "number": 1,
            "sha": "a" * 40,
            "digest": "a" * 16,
            "series": "a" * 16,
            "run": 1,
            "job": 1,
        }
        headers = authorised(open_bot, door, {}, b"")
        for name in [one["name"] for one in door.get("parameters", []) if one["in"] == "query"]:
            for query in (f"{name}=", f"{name}=%20", f"{name}=1&{name}=1"):
                asked = f"{path.format_map(filled | {'id': 1, 'branch': 'main'})}?{query}"
                status, refusal = await open_bot.get(asked, headers=headers)
                assert (status, refusal["error"]) == (400, "invalid_parameter"), asked


async def answer(bot, method, path, query, headers, raw):
    """Status, media type and text of what the bot answers."""
    url = URL(bot.url + path, encoded=True).with_query(query)
    async with bot.http.request(method, url, headers=headers, data=raw or None) as answered:
        return answered.status, answered.content_type, await answered.text()

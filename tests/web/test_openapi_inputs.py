"""No operation refuses a query or body that its schema allows, nor takes another: clients are made from the document."""

import asyncio
import itertools
import json
import re
from collections import Counter
from datetime import date
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import settings as drawing
from hypothesis import strategies as st

from bot.providers.feature import ProviderSettings, read_providers
from tests.harness import L2, SECRET, UPSTREAM, replace, running, sign
from tests.providers.conftest import ENVIRON, PROVIDERS
from tests.providers.sending import signed_buildkite, signed_circleci
from tests.serving import SQLITE
from tests.web.drawn_json import spoilt, values

pytestmark = [pytest.mark.logic, SQLITE, pytest.mark.nightly]

SAMPLES = 12
NEXT = "before"  # the `next` of an earlier answer: which texts there are depends on what is stored
SPAN = {"start", "end"}  # of which each limits the other


def names_in(path):
    """Return the parts of a path that have to be known for its parameters to be read."""
    repo = L2 if "{org}" in path else UPSTREAM
    return dict(zip(("org", "owner", "repo"), (repo.split("/")[0], *repo.split("/")), strict=True))


def texts(schema, document):
    """Return a strategy of texts that the schema of a parameter allows."""
    if "$ref" in schema:
        return texts(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return st.one_of(*(texts(one, document) for one in several if one != {"type": "null"}))
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]]).map(str)
    if schema.get("type") in {"integer", "number"}:
        least, most = schema.get("minimum", -(10**6)), schema.get("maximum", 10**6)
        return st.integers(int(least), int(most)).map(str)
    if schema.get("type") == "boolean":
        return st.sampled_from(["true", "false"])
    if schema.get("format") == "date":
        return st.dates(min_value=date(1970, 1, 1)).map(str)
    least, most = schema.get("minLength", 0), schema.get("maxLength", 300)
    if "pattern" in schema:
        found = st.from_regex(re.compile(schema["pattern"].replace("$", r"\Z"), re.ASCII))
        return found.filter(lambda text: least <= len(text) <= most)
    return st.text(min_size=least, max_size=min(most, 40))


def sample(parameter, document):
    """Return some texts for a parameter, the same each time."""
    found = []

    @settings(max_examples=SAMPLES, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(texts(parameter["schema"], document))
    def draw(text):
        found.append(text)

    draw()
    return list(dict.fromkeys(found))


async def test_what_a_schema_allows_is_not_refused(bot):
    _, document = await bot.get("/api/openapi.json")
    refused = []
    for path, operations in document["paths"].items():
        parameters = [*operations.get("parameters", ()), *operations.get("get", {}).get("parameters", ())]
        queries = {one["name"]: sample(one, document) for one in parameters if one["in"] == "query"}
        paths = {one["name"]: sample(one, document) for one in parameters if one["in"] == "path"}
        needed = {
            one["name"]: queries[one["name"]][0]
            for one in parameters
            if one.get("required") and one["in"] == "query"
        }
        parts = {name: of_path[-1] for name, of_path in paths.items()} | names_in(path)
        asked = path
        for part in re.findall(r"{\w+[^}]*}", path):
            asked = asked.replace(part, quote(parts.get(part[1:-1].partition(":")[0], "1")))
        for name, tried in queries.items():
            for value in tried if name not in {NEXT, *SPAN} else ():
                status, answer = await bot.get(asked, params=needed | {name: value})
                if status == 400:
                    refused.append((path, name, value, answer["detail"]))
    assert not refused, "\n".join(map(repr, refused))


DRAWN = 150  # bodies of each operation
RELAY = "a relay token of ours"
GUIDS = itertools.count()


@pytest.fixture
async def open_bot(settings, github, issuer, clock):
    """A bot that takes whatever is sent to any of its addresses."""
    providers = ProviderSettings(providers=read_providers(PROVIDERS, ENVIRON))
    opened = replace(
        settings,
        relay_token=RELAY,
        rate_limit_per_min=100_000,
        refused_per_min=100_000,
        of_features={**settings.of_features, ProviderSettings: providers},
    )
    async with running(opened, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        yield bot


def signed(bot, operation, raw):
    """Return the headers with which its caller sends a body."""
    schemes = {name for one in operation["security"] for name in one}
    headers = {"Content-Type": "application/json"}
    if "signature" in schemes:
        headers |= {"X-Hub-Signature-256": sign(raw, SECRET), "X-GitHub-Event": "ping"}
        headers["X-GitHub-Delivery"] = f"drawn-{next(GUIDS)}"
    if "backend" in schemes:
        headers["Authorization"] = f"Bearer {bot.issuer.mint(repository=L2, run_id='4455')}"
    if "relay" in schemes:
        headers["X-OOT-Relay-Token"] = RELAY
    if "circleciSignature" in schemes:
        headers |= signed_circleci(raw)
    if "buildkiteSignature" in schemes:
        headers |= signed_buildkite(raw, bot.clock.now() // 1000)
    return headers


def is_refused(status, answer):
    """Whether a body was called malformed; a batch says so of each of its reports."""
    return status in {400, 422} or any(one["code"] in {400, 422} for one in answer.get("reports", ()))


def bodies_of(document):
    """Return the operations that take JSON: method, path, operation, and what it says of the body."""
    return [
        (method, path, operation, operation["requestBody"]["content"]["application/json"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "application/json" in operation.get("requestBody", {"content": {}})["content"]
    ]


async def test_what_a_schema_allows_is_taken_and_nothing_else_is(open_bot):
    _, document = await open_bot.get("/api/openapi.json")
    loop = asyncio.get_running_loop()
    found = bodies_of(document)
    assert len(found) >= 9
    for method, path, operation, content in found:
        judged = await asyncio.to_thread(ask, open_bot, document, method, path, operation, content, loop)
        assert min(judged[True], judged[False]) >= DRAWN // 10, (path, judged)


def ask(bot, document, method, path, operation, content, loop):
    """Draw bodies for an operation, and compare what becomes of them with its schema."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"]}
    schema = jsonschema.Draft202012Validator(whole | content["schema"])
    drawn = values(content["schema"], document["components"])
    example = content["example"]
    address = path.replace("{owner}/{repo}", UPSTREAM) + ("?n=2" if "{owner}" in path else "")
    judged = Counter()

    @drawing(
        max_examples=DRAWN,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.just(example) | drawn | spoilt(example) | drawn.flatmap(spoilt))
    def one(body):
        raw = json.dumps(body).encode()
        asking = bot.request(method.upper(), address, data=raw, headers=signed(bot, operation, raw))
        status, answer = asyncio.run_coroutine_threadsafe(asking, loop).result()
        allowed = schema.is_valid(body)
        judged[allowed] += 1
        assert status < 500, answer
        assert is_refused(status, answer) is not allowed, (path, status, answer, body)

    one()
    return judged

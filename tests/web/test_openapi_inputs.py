"""No operation refuses a query that its schema allows: clients are generated from the document."""

import re
from datetime import date
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness import L2, UPSTREAM
from tests.serving import SQLITE

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
        parts = {name: values[-1] for name, values in paths.items()} | names_in(path)
        asked = path
        for part in re.findall(r"{\w+[^}]*}", path):
            asked = asked.replace(part, quote(parts.get(part[1:-1].partition(":")[0], "1")))
        for name, values in queries.items():
            for value in values if name not in {NEXT, *SPAN} else ():
                status, answer = await bot.get(asked, params=needed | {name: value})
                if status == 400:
                    refused.append((path, name, value, answer["detail"]))
    assert not refused, "\n".join(map(repr, refused))

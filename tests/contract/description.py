"""GitHub's own description of its API and its webhooks, as its packages on npm have it: nothing of it is kept here."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

FOLDER = Path(__file__).parents[2] / ".venv" / "github-description"  # written by `dev.py test --nightly`
GITHUB, SERVER = "api.github.com", "ghes-3.19"  # github.com, and the newest Enterprise Server in the packages
SLASHED = frozenset({"path", "ref", "basehead", "branch"})  # parts of an address that may hold slashes
COMMON = frozenset({304, 400, 401, 403, 404, 410, 422, 429})  # what any call may be answered


class Different(AssertionError):
    """Something is not as GitHub describes it."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A call of the API."""

    name: str  # method and path
    pattern: re.Pattern[str]
    literal: int  # characters of the path that are no parameters
    described: dict[str, Any]


class Description:
    """What one GitHub describes."""

    def __init__(self, name: str) -> None:
        self._api = _load("openapi", name)
        self._hooks = _load("openapi-webhooks", name)
        registry = Registry()
        for address, document in (("api:", self._api), ("hooks:", self._hooks)):
            registry = registry.with_resource(address, Resource(contents=document, specification=DRAFT202012))
        self._registry = registry
        self._operations = [
            _operation(method, path, described)
            for path, methods in self._api["paths"].items()
            for method, described in methods.items()
        ]

    def operation(self, method: str, path: str) -> Operation:
        """Return the operation of a call; raises Different."""
        plain = re.sub(r"^/repositories/\d+", "/repos/o/r", path)
        found = [
            one for one in self._operations if one.name.startswith(method) and one.pattern.fullmatch(plain)
        ]
        if not found:
            raise Different(f"{method} {path} is no call of GitHub's")
        return max(found, key=lambda one: one.literal)

    def check_request(self, operation: Operation, query: dict[str, str], body: Any) -> None:
        """Raise Different unless a call has the parameters and the body that are described."""
        parameters = [self._resolve("api:", one) for one in operation.described.get("parameters", [])]
        known = {one["name"] for one in parameters if one["in"] == "query"}
        if query.keys() - known:
            raise Different(f"{operation.name} has no parameter {', '.join(sorted(query.keys() - known))}")
        described = operation.described.get("requestBody")
        if not described:
            if body:
                raise Different(f"{operation.name} takes no body")
            return
        schema = self._resolve("api:", described)["content"]["application/json"]["schema"]
        if isinstance(body, dict) and "properties" in schema and body.keys() - schema["properties"].keys():
            unknown = ", ".join(sorted(body.keys() - schema["properties"].keys()))
            raise Different(f"{operation.name}: the body has {unknown}")
        self._validate("api:", schema, body, operation.name)

    def check_answer(self, operation: Operation, status: int, body: Any) -> None:
        """Raise Different unless an answer is one that is described."""
        described = operation.described["responses"].get(str(status))
        if described is None:
            if status not in COMMON and status < 500:
                raise Different(f"{operation.name} is never answered {status}")
            return
        content = self._resolve("api:", described).get("content", {})
        if status < 300 and "application/json" in content:
            self._validate("api:", content["application/json"]["schema"], body, f"{operation.name}: {status}")

    def check_webhook(self, event: str, action: str | None, payload: dict[str, Any]) -> None:
        """Raise Different unless a webhook is one that is described."""
        name = "-".join([event.replace("_", "-"), *([action.replace("_", "-")] if action else [])])
        found = self._hooks["webhooks"].get(name)
        if found is None:
            raise Different(f"there is no webhook {name}")
        schema = found["post"]["requestBody"]["content"]["application/json"]["schema"]
        self._validate("hooks:", schema, payload, f"webhook {name}")

    @property
    def names(self) -> set[str]:
        """The names of all operations."""
        return {one.name for one in self._operations}

    def _resolve(self, base: str, node: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in node:
            node = self._registry.resolver(base).lookup(node["$ref"]).contents
        return node

    def _validate(self, base: str, schema: dict[str, Any], value: Any, what: str) -> None:
        resolver = self._registry.resolver(base)
        validator = jsonschema.Draft202012Validator(schema, registry=self._registry, _resolver=resolver)
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            raise Different("\n".join(f"{what}: {_words(error)}" for error in errors[:10]))


def _words(error: jsonschema.ValidationError) -> str:
    inner = min(error.context or [error], key=lambda one: (-len(one.absolute_path), len(one.message)))
    where = ".".join(map(str, inner.absolute_path)) or "(whole)"
    return f"{where}: {inner.message[:200]}"


def _operation(method: str, path: str, described: dict[str, Any]) -> Operation:
    parts = re.split(r"\{(\w+)\}", path)
    pattern = "".join(
        re.escape(part) if index % 2 == 0 else (".+" if part in SLASHED else "[^/]+")
        for index, part in enumerate(parts)
    )
    literal = sum(len(part) for part in parts[::2])
    return Operation(
        name=f"{method.upper()} {path}", pattern=re.compile(pattern), literal=literal, described=described
    )


def _load(package: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = _as_json_schema(json.loads((FOLDER / package / f"{name}.json").read_text()))
    return found


def _as_json_schema(node: Any) -> Any:
    """Return a part of an OpenAPI 3.0 document with what may be null as JSON Schema says it."""
    if isinstance(node, list):
        return [_as_json_schema(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {
        key: _as_json_schema(value)
        for key, value in node.items()
        if key not in {"nullable", "example", "examples"}
    }
    if node.get("nullable") is True:
        if isinstance(made.get("type"), str):
            made["type"] = [made["type"], "null"]
        if isinstance(made.get("enum"), list):
            made["enum"] = [*made["enum"], None]
        if "type" not in made:
            made = {"anyOf": [made, {"type": "null"}]}
    return made


def reason_to_skip() -> str:
    """Return why there is no description here, empty where there is one."""
    if (FOLDER / "openapi" / f"{GITHUB}.json").exists():
        return ""
    return "GitHub's description is not here: `dev.py test --nightly` fetches it where there is npm"


@functools.cache
def described(name: str = GITHUB) -> Description:
    """Return a description; reading it takes seconds."""
    return Description(name)

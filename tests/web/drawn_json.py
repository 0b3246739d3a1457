"""JSON values drawn from a schema of the API's document, and spoilt ones."""

import re

from hypothesis import strategies as st

# no line feed: to Python `$` is also before the last one, to JSON Schema it is not
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\n")
TEXT = st.text(LETTERS, max_size=20)
NUMBER = st.integers(-(2**70), 2**70) | st.floats(-1e9, 1e9).filter(lambda number: not number.is_integer())
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def resolved(schema, components):
    """Return a schema without its reference, what stands beside it laid over."""
    if "$ref" not in schema:
        return schema
    named = components["schemas"][schema["$ref"].rpartition("/")[2]]
    beside = {name: value for name, value in schema.items() if name != "$ref"}
    properties = named.get("properties", {}) | beside.get("properties", {})
    required = [*named.get("required", ()), *beside.get("required", ())]
    return named | beside | {"properties": properties, "required": required}


def values(schema, components):
    """Return a strategy of values that a schema allows, but for its conditions."""
    schema = resolved(schema, components)
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return st.one_of([values(one, components) for one in several])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type", "anything")
    return st.one_of(
        [KINDS[kind](schema, components) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    )


def texts(schema, _components):
    least, most = schema.get("minLength", 0), schema.get("maxLength", 300)
    if "pattern" not in schema:
        return st.text(LETTERS, min_size=least, max_size=min(most, 40))
    form = st.from_regex(re.compile(schema["pattern"].replace("$", r"\Z")))
    return form.filter(lambda text: least <= len(text) <= most and "\n" not in text)


def objects(schema, components):
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    if not properties:
        return st.dictionaries(TEXT, ANYTHING, max_size=3)
    drawn = {name: values(one, components) for name, one in properties.items()}
    return st.fixed_dictionaries(
        {name: drawn[name] for name in drawn if name in required},
        optional={name: drawn[name] for name in drawn if name not in required},
    )


def lists(schema, components):
    least, most = schema.get("minItems", 0), min(schema.get("maxItems", 3), 3)
    return st.lists(values(schema.get("items", {}), components), min_size=least, max_size=most)


KINDS = {
    "string": texts,
    "integer": lambda one, _: st.integers(one.get("minimum", -(2**70)), one.get("maximum", 2**70)),
    "number": lambda one, _: st.floats(one.get("minimum", -1e9), one.get("maximum", 1e9)),
    "boolean": lambda *_: st.booleans(),
    "null": lambda *_: st.none(),
    "array": lists,
    "object": objects,
    "anything": lambda *_: ANYTHING,
}


@st.composite
def spoilt(draw, value):
    """Draw a value of which some part, however deep, is something else or missing."""
    inner = [*value] if isinstance(value, dict) else [*range(len(value))] if isinstance(value, list) else []
    if not inner or not draw(st.integers(0, 5)):
        return draw(ANYTHING)
    at = draw(st.sampled_from(inner))
    made = value.copy()
    if draw(st.integers(0, 3)):
        made[at] = draw(spoilt(value[at]))
    else:
        del made[at]
    return made

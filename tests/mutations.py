"""How does a webhook body go wrong? Bodies as GitHub sends them, spoilt by a seeded generator; the signature is right."""

from __future__ import annotations

import copy
import json
import random

NOTHING_LIKE_IT = [
    None, True, False, 0, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, 1e308, "", " ", "x" * 70_000, "0", "null", "../..",
    "a\x00b", "\ud800", "\udfff\ud800", "\u202e\U0001f47b", "9999999-99-99T99:99:99Z", "+275760-09-13T00:00:00Z",
    "0001-01-01T00:00:00+23:59", "2026-01-01", [], [[]], [None], [1, "a", {}], {}, {"id": None}, {"": {"": ""}}, {"a\x00": 1},
]  # fmt: skip
GHOSTS = ("user", "sender", "owner", "actor", "triggering_actor", "assignee", "head_commit", "organization")


def spoilt(bodies, *, seed, number):
    """Yield (what was done, event, raw body), each different, from (event, payload) as GitHub sends them."""
    chance = random.Random(seed)
    for count in range(number):
        event, payload = bodies[count % len(bodies)]
        changed = copy.deepcopy(payload)
        done = [chance.choice(CHANGES)(changed, chance) for _ in range(chance.choice((1, 1, 2, 5)))]
        raw = json.dumps(changed).encode()
        if chance.random() < 0.3:
            damage = chance.choice(DAMAGES)
            raw = damage(raw, chance)
            done.append(damage.__name__)
        yield f"seed {seed}, body {count}: {'; '.join(done)}", event, raw


def places(value, path=()):
    """Every container and key in a payload, depth first."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key, (*path, key)
        if isinstance(value[key], dict | list):
            yield from places(value[key], (*path, key))


def any_place(payload, chance):
    """A place; one near the top as likely as all below together."""
    found = list(places(payload))
    if chance.random() < 0.5:
        found = [place for place in found if len(place[2]) <= 2]
    return chance.choice(found)


def replace(payload, chance):
    container, key, path = any_place(payload, chance)
    container[key] = copy.deepcopy(chance.choice(NOTHING_LIKE_IT))
    return f"{named(path)} = {container[key]!r:.40}"


def remove(payload, chance):
    container, key, path = any_place(payload, chance)
    del container[key]
    return f"no {named(path)}"


def swap(payload, chance):
    (one, key, path), (other, name, _) = any_place(payload, chance), any_place(payload, chance)
    taken = copy.deepcopy(other[name])
    one[key] = taken
    return f"{named(path)} = what is at {name}"


def null_an_object(payload, chance):
    objects = [place for place in places(payload) if isinstance(place[0][place[1]], dict)]
    if not objects:
        return "no object left"
    container, key, path = chance.choice(objects)
    container[key] = None
    return f"{named(path)} = null"


def ghosts(payload, _chance):
    """Everybody has deleted their account, and the fork is gone."""
    for container, key, path in list(places(payload)):
        if key in GHOSTS or path[-2:] in {("head", "repo"), ("workflow_run", "head_repository")}:
            container[key] = None
    return "ghosts"


def bury(payload, chance):
    container, key, path = any_place(payload, chance)
    for _ in range(depth := chance.choice((10, 65, 200))):
        container[key] = chance.choice(([container[key]], {"a": container[key]}))
    return f"{named(path)} {depth} deep"


def lengthen(payload, chance):
    lists = [place for place in places(payload) if isinstance(place[0][place[1]], list)]
    container, key, path = chance.choice(lists) if lists else any_place(payload, chance)
    container[key] = [copy.deepcopy(chance.choice(NOTHING_LIKE_IT[:-8])) for _ in range(50)]
    return f"{named(path)} of 50 things"


def truncate(raw, chance):
    return raw[: chance.randrange(len(raw))]


def repeat_a_key(raw, chance):
    """The same names again, of other types."""
    value = json.dumps(chance.choice(NOTHING_LIKE_IT)).encode()
    name = chance.choice((b"action", b"repository", b"number", b"sender", b"issue", b"pull_request", b"ref"))
    return raw[:-1] + b', "' + name + b'": ' + value + b"}"


def flip_bytes(raw, chance):
    flipped = bytearray(raw)
    for _ in range(chance.randrange(1, 4)):
        flipped[chance.randrange(len(flipped))] = chance.randrange(256)
    return bytes(flipped)


def huge_number(raw, chance):
    digits = chance.choice(
        (
            b"9" * 400, b"-" + b"9" * 30, b"1e400", b"1e-400", b"NaN", b"-0", b"0" * 20 + b"1",
            b"1." + b"0" * 5_000 + b"1",
        )
    )  # fmt: skip
    return raw.replace(b": 1", b": " + digits, 1)


def nest_deeply(raw, chance):
    depth = chance.choice((600, 950, 985, 50_000))
    return raw[:-1] + b', "deep": ' + b"[" * depth + b"]" * depth + b"}"


def named(path):
    return ".".join(map(str, path))


CHANGES = (
    replace, replace, replace, remove, remove, swap, swap, null_an_object, null_an_object, ghosts, bury,
    lengthen,
)  # fmt: skip
DAMAGES = (truncate, repeat_a_key, repeat_a_key, flip_bytes, huge_number, nest_deeply)

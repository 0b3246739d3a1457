"""Do page, comment, check runs and JSON say the same of a pull request? What each of them says, and the comparison."""

from __future__ import annotations

import html
import re
from collections import Counter

from tests.harness import UPSTREAM

MARKER = "<!-- ootbot:summary -->"
NEWEST = 3  # heads of a pull request that are compared
STATES = {
    "success": "passed",
    "failure": "failed",
    None: "waiting",
}  # of the gate, by its check run's conclusion
MARKS = {"passed": "good", "failed": "bad", "waiting": "wait", None: "idle"}
ROLES = ("blocking", "requested", "watching")
WORDS = {
    "queued": "queued", "running": "running", "confirming": "being confirmed", "held": "held back", "success": "passed",
    "failure": "failed", "timed_out": "timed out", "cancelled": "cancelled", "neutral": "neutral",
    "never_started": "never started", "not_run": "not run", "not_installed": "not installed",
    "dispatch_failed": "could not be dispatched",
}  # fmt: skip

SIGNS = {  # in the comment; any other state is red
    "passed": "✅", "queued": "⏳", "running": "⏳", "being confirmed": "⏳", "held back": "✋", "cancelled": "⚪",
    "neutral": "⚪", "not run": "⚪",
}  # fmt: skip


async def check(bot) -> None:
    """Compare what is said of every pull request, once all that was to be written is."""
    bot.github.faults.waiting.clear()
    await bot.settle(horizon=150)
    for pull in bot.github.state.repo(UPSTREAM).pulls.values():
        for sha in list(dict.fromkeys([pull.head_sha, *reversed(pull.commits)]))[:NEWEST]:
            await _check_head(bot, pull, sha)


async def _check_head(bot, pull, sha) -> None:
    status, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}?sha={sha}")
    if status == 404:
        return  # nobody has heard of it
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}?sha={sha}")
    gate, by_role = answer["gate"], backends_by_role(answer)
    expected = {
        "banner": gate and (gate["state"], gate["sentence"]),
        "check run": gate and (gate["state"], gate["title"]),
        "mark": MARKS[mark_of_json(answer)],
        "counts": {role: Counter(by_role[role].values()) for role in ROLES if by_role[role]},
    }
    said = {
        "banner": gate_of_page(page),
        "check run": gate_of_checks(bot, sha),
        "mark": mark_of_page(page),
        "counts": counts_of_page(page),
    }
    if gate and gate["title"].endswith(", as last written"):
        assert gate_of_checks(bot, sha)[0] == gate["state"]
        del said["check run"]
    comment = comment_on(bot, pull)
    # of labels changed within one second the comment knows what GitHub shows, the page only once it was reconciled
    known = sorted(answer["pull"]["labels"] or ()) == sorted(pull.labels)
    if sha == pull.head_sha and comment and "previous commit" not in comment and known:
        watched = {name: SIGNS.get(word, "❌") for name, word in by_role["watching"].items()}
        expected |= {"listed": by_role["blocking"] | by_role["requested"], "watched": watched}
        said |= {"listed": backends_of_comment(comment), "watched": watched_of_comment(comment)}
        if gate is None or gate["pull_number"] == pull.number:
            expected["blocks"] = bool(gate and gate["state"] == "failed")
            said["blocks"] = "\n**❌ " in comment
    differing = {name: (said[name], expected[name]) for name in said if said[name] != expected[name]}
    assert differing == {}, f"#{pull.number} at {sha[:7]}, against its JSON: {differing}"


def gate_of_page(page):
    """State and sentence of the banner, None where there is none."""
    banner = re.search(r'<p class="gate (\w+)">(.*?)</p>', page, re.DOTALL)
    if banner is None:
        return None
    state = next(state for state, tone in MARKS.items() if tone == banner[1])
    return state, text_of(re.search(r"<strong>(.*?)</strong>", banner[2], re.DOTALL)[1])


def gate_of_checks(bot, sha):
    """State and title of the check run that branch protection requires, None where there is none."""
    found = bot.checks(UPSTREAM, sha).get("oot / gate")
    return found and (STATES[found[1]], found[2])


def mark_of_page(page):
    """The tone of the mark beside the commit that is shown."""
    return re.search(r'aria-current="true"><span class="sign (\w+)"', page)[1]


def mark_of_json(answer):
    """The gate's state in the list of heads."""
    shown = answer["pull"]["head_sha"]
    return next(head["gate"] for head in answer["heads"] if head["sha"] == shown)


def counts_of_page(page):
    """By role, how many backends are in each state, in words."""
    found = {}
    for role in ROLES:
        if group := re.search(rf'<ul class="tally" id="{role}".*?</ul>', page, re.DOTALL):
            badges = re.findall(r'<span class="badge \w+">.*?</span>(.*?)</span>', group[0], re.DOTALL)
            parts = (text_of(badge).split(" ", 1) for badge in badges)
            found[role] = Counter({word: int(count) for count, word in parts})
    return found


def backends_by_role(answer):
    """By role, every backend's name and its state in words."""
    found = {role: {} for role in ROLES}
    for one in answer["backends"]:
        if one["source"] != "relay":
            found[one["role"]][one["device"] or one["repo"]] = WORDS[one["state"]]
    return found


def comment_on(bot, pull):
    """The text of our comment, None where there is none."""
    ours = [
        one.body for one in bot.github.comments(pull) if one.app is bot.app and one.body.startswith(MARKER)
    ]
    return ours[-1] if ours else None


def backends_of_comment(comment):
    """Its table and the line of those that passed: every backend's name and result in words."""
    rows = re.findall(r"^\| `([^`|]+)` \| \S+ ([^|]+?) \|", comment, re.MULTILINE)
    passed = re.search(r"^✅ \d+ passed: (.*)$", comment, re.MULTILINE)
    found = dict.fromkeys(re.findall(r"`([^`]+)`", passed[1]) if passed else (), "passed")
    return found | {name: result.partition(", ignored by")[0] for name, result in rows}


def watched_of_comment(comment):
    """What it also watches: every backend's name and sign."""
    part = re.search(r"<summary>Also watching.*?</details>", comment, re.DOTALL)
    found = re.findall(r"^- (\S+) `([^`]+)`: ", part[0], re.MULTILINE) if part else []
    return {name: sign for sign, name in found}


def text_of(markup):
    """A piece of HTML as text."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())

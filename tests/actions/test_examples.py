"""Do the examples for other CIs tell the bot who may report, and keep the pull request's code apart as they say?"""

import re
from pathlib import Path

import pytest
import yaml

from bot.core import setting_types

FOLDER = Path(__file__).parents[2] / "actions" / "report" / "examples"


def issuers(name: str):
    """The issuers of the setting at the top of an example, with its blanks filled in."""
    head = re.sub(r"\n#\s*", " ", (FOLDER / name).read_text())
    (setting,) = re.findall(r"OOTBOT_OIDC_ISSUERS='(.+?)'", head)
    return setting_types.issuers(re.sub(r"<[^>]+>", "0f1e", setting))


@pytest.mark.parametrize("name", ["buildkite.yml", "circleci.yml", "gitlab-ci.yml"])
def test_the_setting_an_example_asks_for_can_be_read(name):
    github, other = issuers(name)
    assert github.repository_claim
    assert set(other.repositories.values()) == {"org/npu-backend"}


def test_on_buildkite_the_steps_that_report_are_the_ones_the_bot_hears():
    steps = {step["key"]: step for step in yaml.safe_load((FOLDER / "buildkite.yml").read_text())["steps"]}
    reporting = {key for key, step in steps.items() if "oidc request-token" in str(step["command"])}
    _, buildkite = issuers("buildkite.yml")
    assert buildkite.repositories_claims[-1] == "step_key"
    assert {identity.rpartition("/")[2] for identity in buildkite.repositories} == reporting
    queues = {key: step["agents"]["queue"] for key, step in steps.items()}
    assert steps.keys() - reporting == {"test"}
    assert queues["test"] not in {queues[key] for key in reporting}

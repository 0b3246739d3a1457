"""What does this command do? The page that says it for each, and the search that leads there."""

from bot.features import FEATURES
from bot.oot.commands.syntax import VERBS, describe_commands, further_commands
from tests.pages.page_checks import page_text
from tests.pages.reading import read
from tests.serving import SQLITE


@SQLITE
async def test_each_command_is_on_the_page_with_what_it_does_and_who_may_give_it(bot):
    described = describe_commands(FEATURES)
    assert {one.verb for one in described} == {*VERBS, *further_commands(FEATURES)}
    page = await page_text(bot, "/oot/commands")
    for one in described:
        assert f"/oot {one.usage} {one.does} {one.who}" in page


@SQLITE
async def test_a_command_is_found_as_it_is_written_and_by_its_verb(bot):
    for text in ("/oot rerun npu", "rerun", "/oot re"):
        found = (await read(bot, f"/api/search?q={text}"))["hits"]
        assert "/oot/commands#rerun" in [one["url"].removeprefix(bot.url) for one in found], text
    everything = (await read(bot, "/api/search?q=/oot"))["hits"]
    assert len([one for one in everything if one["kind"] == "command"]) == len(describe_commands(FEATURES))

"""Are titles found by the beginnings of their words, whatever they are made of and however many there are?"""

import pytest
import sqlalchemy as sa

from bot.db import word_index
from bot.db.word_index import LONGEST_WORD, asked_words, begins_each, title, words_of


def titles(*texts, kind="pull", owner=1):
    return [
        {"kind": kind, "repository_id": owner, "ref": f"{at:04}", "text": text}
        for at, text in enumerate(texts, start=1)
    ]


async def stored(bot, *given):
    async with bot.store.transaction() as tx:
        await word_index.put_titles(tx, given)


async def found(bot, text, *, kind="pull", owners=(1,), limit=10):
    async with bot.store.read() as tx:
        return [
            row["ref"] for row in await word_index.find_titles(tx, kind, text, owners=owners, limit=limit)
        ]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Fix Conv2d", "conv2d"),
        ("[inductor] Fuse", "inductor"),
        ("torch_xla: bump", "torch_xla"),
        ("torch_xla: bump", "xla"),
        ("Größe prüfen", "größe"),
        ("修复 内存", "内存"),
        ("ghstack/alice/12/head", "alice"),
    ],
)
def test_words_are_found_in_titles(text, word):
    assert set(asked_words(word)) <= words_of(text)


def test_a_long_word_is_cut_between_characters():
    (word,) = asked_words("ü" * 200)
    assert len(word) <= LONGEST_WORD
    assert word.decode() == "ü" * (LONGEST_WORD // 2)


def test_each_asked_word_begins_one_of_the_title():
    assert begins_each(asked_words("conv fix"), "Fix the convolution")
    assert not begins_each(asked_words("volution"), "Fix the convolution")
    assert not begins_each(asked_words("conv gone"), "Fix the convolution")


async def test_titles_are_found_by_the_beginnings_of_words_the_newest_first(bot):
    await stored(bot, *titles("Fix conv2d on npu", "Speed up conv3d", "Fix a leak", "Fix conv1d"))
    assert await found(bot, "conv") == ["0004", "0002", "0001"]
    assert await found(bot, "FIX con") == ["0004", "0001"]
    assert await found(bot, "npu conv2d fix") == ["0001"]
    assert await found(bot, "onv") == []
    assert await found(bot, "conv", limit=2) == ["0004", "0002"]
    assert await found(bot, "conv", owners=(2,)) == []
    assert await found(bot, "conv", kind="commit") == []
    assert await found(bot, "!? %") == []


async def test_a_changed_title_is_found_by_its_new_words_only(bot):
    await stored(bot, *titles("Fix conv2d"))
    await stored(bot, *titles("Revert conv2d"))
    await stored(bot, *titles("Revert conv2d"))
    assert await found(bot, "revert") == ["0001"]
    assert await found(bot, "fix") == []
    assert len(await bot.rows("word_title")) == 1


async def test_of_very_many_titles_with_a_word_the_newest_are_looked_at(bot):
    many = word_index.CANDIDATES + 50
    await stored(bot, *titles(*(f"Fix number{at}" for at in range(many)), "Fixture of tests"))
    assert await found(bot, "fix", limit=2) == [f"{many}", f"{many - 1}"]
    assert await found(bot, "fix number7", limit=1) == ["0800"]
    assert await found(bot, "number1049 fix") == ["1050"]
    assert await found(bot, "fixture") == [f"{many + 1}"]


async def test_titles_of_what_is_gone_are_forgotten_in_turns(bot):
    await stored(bot, *titles("Fix one", "Fix two", kind="some"), *titles("Fix three", kind="other"))
    forgotten = 0
    for _ in range(3):  # hours: each has its turn
        async with bot.store.transaction() as tx:
            forgotten += await word_index.forget_titles(tx, "some", kept=title.c.ref == "0002")
        await bot.wait(3_600)
    assert forgotten == 1
    assert await found(bot, "fix", kind="some") == ["0002"]
    assert await found(bot, "fix", kind="other") == ["0001"]
    async with bot.store.read() as tx:
        words = (await tx.run(sa.text("SELECT count(*) FROM word WHERE kind = 'some'"))).scalar()
    assert words == 2

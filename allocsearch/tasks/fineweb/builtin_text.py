"""A small text made from templates, so that the task runs where there is no data.

Stories of a few sentences: who has what and where it is are said at first and taken up
again later, so that a model which remembers predicts them better. Losses on it say
nothing about natural text.
"""

import random
from collections.abc import Callable


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NAMES = _words(
    """Ada Bruno Clara Dario Edith Farid Greta Hugo Ines Jonas Kemal Lena Marta
Nils Olga Pavel Quentin Rosa Samir Tilda Ugo Vera Wanda Yusuf Zora"""
)
_PLACES = _words(
    """attic bakery barn boathouse cellar chapel garden greenhouse harbour kitchen
library lighthouse market mill museum observatory orchard schoolhouse stable station
theatre tower workshop"""
)
_THINGS = _words(
    """apple bell book bottle button candle clock coin compass drum feather flute
hammer kettle key lamp letter map mirror needle pearl ribbon ring shell spoon stone
thimble ticket violin whistle"""
)
_QUALITIES = _words(
    """blue brass broken carved cracked crooked dusty golden green heavy old
painted red rusty shining silver small smooth white wooden"""
)
_WEATHERS = (
    "It rained all morning.",
    "The wind came from the sea.",
    "Snow lay on the roofs.",
    "The sun stood high.",
    "Fog filled the streets.",
    "The evening was warm and still.",
    "Thunder rolled over the hills.",
    "The first leaves were falling.",
)
_NUMBERS = _words("two three four five six seven eight nine ten eleven twelve")

N_TRAIN, N_VALID = 400, 80
"""Stories of each split; no story of one is in the other."""


def stories(split: str) -> list[str]:
    """The documents of "train" or "valid", always the same."""
    made = dict.fromkeys(_story(number) for number in range(N_TRAIN + N_VALID))
    kept = list(made)
    return kept[N_VALID:] if split == "train" else kept[:N_VALID]


def _story(number: int) -> str:
    # Of all methods only random() gives the same numbers in every version of Python.
    uniform = random.Random(number).random

    def pick(words: list[str]) -> str:
        return words.pop(int(uniform() * len(words)))

    names, places, things = list(_NAMES), list(_PLACES), list(_THINGS)
    one, other = pick(names), pick(names)
    told = {
        "one": one,
        "other": other,
        "here": pick(places),
        "there": pick(places),
        "thing": f"{pick(list(_QUALITIES))} {pick(things)}",
        "second": f"{pick(list(_QUALITIES))} {pick(things)}",
        "number": pick(list(_NUMBERS)),
        "weather": pick(list(_WEATHERS)),
    }
    parts = [pick(list(choices)).format(**told) for choices in _SCENES]
    parts.append(_counting(uniform, told["other"], pick(things)))
    parts.append(pick(list(_ENDINGS)).format(**told))
    return f"{one} and the {told['thing']}\n\n" + "\n\n".join(parts) + "\n"


def _counting(uniform: Callable[[], float], who: str, thing: str) -> str:
    """A sum in words and figures, which has one right answer."""
    first, more = 1 + int(uniform() * 9), 1 + int(uniform() * 9)
    return (
        f"{who} counted again to be sure. There had been {first} of one kind of "
        f"{thing} and {more} of another, and {first} and {more} make {first + more}."
    )


_SCENES = (
    (
        "{weather} {one} had kept the {thing} in the {here} for {number} years, and "
        "nobody but {other} knew of it.",
        "{weather} When {one} came to the {here}, the {thing} lay beside the door as "
        "if someone had been waiting for {number} days.",
        "In the {here} there was a {thing}. {weather} {one} looked at it for a long "
        "time, and then called {other}, who lived {number} doors away.",
    ),
    (
        '"Have you seen my {second}?" asked {other}. "It was in the {there} '
        'yesterday." {one} had not, but promised to look for it.',
        '"I will give you my {second} for it," said {other}, "if you come to the '
        '{there} before dark." {one} thought about that, and said no.',
        "{other} had left a {second} in the {there}, and wanted it back. So the two "
        "of them went there together, {one} first and {other} behind.",
    ),
    (
        "The way to the {there} was longer than they remembered. {one} carried the "
        "{thing} under one arm. Twice they stopped to rest, and twice {other} asked "
        "whether it was heavy.",
        "Nobody was in the {there}. On the table stood {number} cups, all of them "
        "empty, and between the cups lay the {second}. {other} laughed out loud.",
        "At the {there} an old man sold soup. He looked at the {thing}, and then at "
        '{one}. "That," he said, "belongs in the {here}." {other} nodded slowly.',
    ),
)
_ENDINGS = (
    "In the end {one} took the {thing} back to the {here}, and {other} took the "
    "{second} home from the {there}.",
    "So the {second} stayed in the {there}, where {other} had left it, and the "
    "{thing} stayed with {one}.",
    "That night {other} dreamt of the {here}, and of {one}, who stood there with the "
    "{thing} and said nothing at all.",
)

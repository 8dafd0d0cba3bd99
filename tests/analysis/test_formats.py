"""Numbers as people read them."""

import doctest
import math

import pytest

from allocsearch.analysis import formats
from allocsearch.analysis.formats import (
    format_bytes,
    format_count,
    format_number,
    format_score,
    format_seconds,
    listing,
    plain,
    score_decimals,
)


def test_examples():
    assert doctest.testmod(formats).failed == 0


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (8.3149, 0.1234, "8.31 ± 0.12"),
        (-8.3149, 12.6, "−8 ± 13"),
        (1234.5, 0.0, "1234 ± 0"),
        (2.0, None, "2"),
        (2.0, math.nan, "2"),
        (math.inf, 1.0, "–"),
        (None, None, "–"),
        (1e-7, 3e-9, "1e−07 ± 3e-09"),
    ],
)
def test_scores_show_two_digits_of_their_error(value, error, text):
    assert format_score(value, error) == text


def test_a_column_shares_its_decimals():
    decimals = score_decimals([0.094, 0.2, 0.3, None, math.nan, 0.0])
    assert decimals == 2
    assert format_score(7.0771, 0.0939, decimals) == "7.08 ± 0.09"
    assert score_decimals([None]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_number(-0.000123456), "−0.0001235"),
        (format_count(50_000_000), "50 M"),
        (format_count(0), "0"),
        (format_bytes(0), "0 B"),
        (format_bytes(2400), "2.344 KiB"),
        (format_bytes(1024), "1 KiB"),
        (format_seconds(12.5), "12.5 s"),
        (format_seconds(200), "3 min 20 s"),
        (format_seconds(7300), "2 h 1 min"),
        (format_seconds(90_000), "1 d 1 h"),
        (format_seconds(None), "–"),
        (plain("a\n\tb\x1b[0m\u202e"), "a b[0m"),
        (listing(["a", "b", "c"]), "a, b and c"),
        (listing(["a"]), "a"),
        (listing([]), ""),
    ],
)
def test_formats(text, expected):
    assert text == expected

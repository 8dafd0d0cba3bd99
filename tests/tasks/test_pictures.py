"""Films of pictures and the files they go to."""

import numpy as np
import pytest
from PIL import Image

from allocsearch.errors import ConfigError
from allocsearch.tasks.pictures import beside, captioned, filmstrip, save

RED, GREEN, BLUE = (200, 0, 0), (0, 200, 0), (0, 0, 200)


def plain(colour, height=20, width=30):
    return np.full((height, width, 3), colour, np.uint8)


def count(picture, colour):
    """How many pixels have exactly a colour."""
    return int((picture == np.array(colour)).all(axis=-1).sum())


def test_captions_leave_the_picture_whole_and_fit_beside_it():
    short = captioned(plain(RED), ["one", "two"], 100)
    long = captioned(plain(RED), ["a name much too long for it" * 3, "two"], 100)
    assert short.shape == long.shape
    assert short.shape[1] == 100
    for picture in (short, long):
        np.testing.assert_array_equal(picture[-20:, :30], plain(RED))
        assert (picture[:-20] < 100).any()
    assert captioned(plain(RED), [""]).shape[1] == 30


def test_shorter_films_hold_their_last_picture():
    first = [plain(RED), plain(GREEN)]
    second = [plain(BLUE, 40), plain(RED, 40), plain(BLUE, 40)]
    film = beside([first, second])
    assert len({picture.shape for picture in film}) == 1
    expected = [(RED, BLUE), (GREEN, RED), (GREEN, BLUE)]
    for picture, (left, right) in zip(film, expected, strict=True):
        half = picture.shape[1] // 2
        assert count(picture[:, :half], left) == 20 * 30
        assert count(picture[:, half:], right) == 40 * 30


def test_a_strip_has_every_picture_in_reading_order():
    colours = [(10 * i, 0, 0) for i in range(1, 8)]
    strip = filmstrip([plain(colour) for colour in colours])
    for colour in colours:
        assert count(strip, colour) == 20 * 30
    corners = [
        tuple(np.argwhere((strip == np.array(c)).all(axis=-1))[0]) for c in colours
    ]
    assert corners == sorted(corners)
    assert len({row for row, _ in corners}) > 1


def test_files_hold_the_film(tmp_path):
    film = [plain(RED), plain(GREEN), plain(BLUE)]
    save(tmp_path / "film.GIF", film)
    with Image.open(tmp_path / "film.GIF") as image:
        assert (image.format, image.n_frames, image.size) == ("GIF", 3, (30, 20))
        for i, picture in enumerate(film):
            image.seek(i)
            np.testing.assert_array_equal(np.asarray(image.convert("RGB")), picture)
    save(tmp_path / "film.png", film)
    with Image.open(tmp_path / "film.png") as image:
        np.testing.assert_array_equal(np.asarray(image), filmstrip(film))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("film.mp4", "ending in .gif or .png"),
        ("film", "ending in .gif or .png"),
        ("missing/film.gif", "there is no folder"),
        ("folder.gif", "folder.gif cannot be written: Is a directory"),
    ],
)
def test_files_that_cannot_be_written(tmp_path, name, words):
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(ConfigError, match=words):
        save(tmp_path / name, [plain(RED)])

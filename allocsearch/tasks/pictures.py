"""Pictures as arrays, and files of them: captions, several side by side, GIF and PNG.

A picture is uint8 `[height, width, 3]`, red, green and blue.
"""

import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from allocsearch.errors import ConfigError

SUFFIXES = (".gif", ".png")

_PAPER, _INK = (255, 255, 255), (30, 30, 30)
_GAP, _STRIP_GAP = 8, 20
_FONT_SIZE, _LINE = 13, 17
_STEP_MS, _LAST_MS = 250, 2000
_STRIP_ASPECT = 1.5


def check_suffix(path: Path) -> None:
    """Refuse a file that `save` would not write.

    Raises:
        ConfigError: its name ends in something else, or its folder is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: pictures go to a file ending in .gif or .png")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")


def captioned(
    picture: np.ndarray, lines: Sequence[str], least_width: int = 0
) -> np.ndarray:
    """A picture under lines of text, which are cut where they are too long.

    Args:
        picture: stands to the left of what is wider.
        lines: of text, the same number for pictures to be of one size.
        least_width: of the result, in pixels.
    """
    font = ImageFont.load_default(_FONT_SIZE)
    height, width = picture.shape[:2]
    full_width = max(width, least_width)
    top = _LINE * len(lines) + 4
    image = Image.new("RGB", (full_width, height + top), _PAPER)
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(lines):
        text = line
        while text and draw.textlength(text, font) > full_width:
            text = text.removesuffix("…")[:-1] + "…" * (len(text) > 1)
        draw.text((0, i * _LINE), text, _INK, font)
    image.paste(Image.fromarray(picture), (0, top))
    return np.asarray(image)


def beside(films: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Several films as one, next to each other; the shorter hold their last picture.

    A margin goes around them.

    Args:
        films: at least one picture each, and within a film of one size.
    """
    height = max(film[0].shape[0] for film in films)
    columns = [[_padded(picture, height) for picture in film] for film in films]
    gap = np.full((height, _GAP, 3), _PAPER, np.uint8)
    joined = []
    for step in zip_longest(*columns):
        shown = [
            column[-1] if picture is None else picture
            for picture, column in zip(step, columns, strict=True)
        ]
        parts = [part for picture in shown for part in (gap, picture)]
        joined.append(_with_margin(np.concatenate([*parts, gap], axis=1)))
    return joined


def filmstrip(film: Sequence[np.ndarray]) -> np.ndarray:
    """All pictures of a film as one, in rows from left to right."""
    height, width = (n + _STRIP_GAP for n in film[0].shape[:2])
    n_columns = math.ceil(math.sqrt(len(film) * _STRIP_ASPECT * height / width))
    n_columns = min(n_columns, len(film))
    n_rows = math.ceil(len(film) / n_columns)
    shape = (n_rows * height - _STRIP_GAP, n_columns * width - _STRIP_GAP, 3)
    strip = np.full(shape, _PAPER, np.uint8)
    for i, picture in enumerate(film):
        row, column = divmod(i, n_columns)
        y, x = row * height, column * width
        strip[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    return strip


def save(path: Path, film: Sequence[np.ndarray]) -> None:
    """Write a film as an animation (.gif) or as a filmstrip (.png).

    Args:
        path: where to.
        film: at least one picture, all of one size.

    Raises:
        ConfigError: the suffix is another, or the file cannot be written.
    """
    check_suffix(path)
    try:
        if path.suffix.lower() == ".png":
            Image.fromarray(filmstrip(film)).save(path, format="PNG", optimize=True)
        else:
            _save_gif(path, film)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from (
            error
        )


def _save_gif(path: Path, film: Sequence[np.ndarray]) -> None:
    # One palette for all pictures, lest colours flicker.
    together = Image.fromarray(np.concatenate(film))
    indexed = together.quantize(256, dither=Image.Dither.NONE)
    height, width = film[0].shape[:2]
    first, *rest = (
        indexed.crop((0, i * height, width, (i + 1) * height)) for i in range(len(film))
    )
    first.save(
        path,
        format="GIF",
        save_all=True,
        append_images=rest,
        duration=[_STEP_MS] * len(rest) + [_LAST_MS],
        loop=0,
    )


def _padded(picture: np.ndarray, height: int) -> np.ndarray:
    below = height - picture.shape[0]
    return np.pad(picture, ((0, below), (0, 0), (0, 0)), constant_values=_PAPER[0])


def _with_margin(picture: np.ndarray) -> np.ndarray:
    """Above and below."""
    around = ((_GAP, _GAP), (0, 0), (0, 0))
    return np.pad(picture, around, constant_values=_PAPER[0])

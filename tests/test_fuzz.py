"""Thousands of broken inputs: each is read or refused in a sentence, and soon."""

import json
import random
import shutil
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from allocsearch.allocation import Allocation
from allocsearch.cli.standing import study_standing
from allocsearch.config import load_config
from allocsearch.errors import AllocsearchError
from allocsearch.results import Objective, SeedResult, TrialResult
from allocsearch.search import Axis, Points, SearchStudy
from allocsearch.study import Study, load_study
from allocsearch.tasks.sokoban.level_files import read_levels
from allocsearch.work import parse_flops

TOKENS = (
    *("null", "~", "true", "1e999", "-1", "0", "999999999999999999999999", ".nan"),
    *("[", "]", "{", "}", "- ", ": ", "? ", "&a ", "*a", "!!python/object:os.x ", "|"),
    *("!!binary ", "!!timestamp ", "2001-02-30", "0x", "0b", "1:2:3", "<<: ", "=", "%"),
    *("'", '"', "\\", "\t", "\n", "\r", "\0", "\x1b[31m", "\x85", "\u2028", "\ufeff"),
    *("\ud7ff", "é", "\U0001f4a5", "[" * 50, "{a: " * 30, "a.b.c", "..", "/", "@", "#"),
)


def mutated(draw: random.Random, text: bytes, others: list[bytes]) -> bytes:
    """One to six changes of a text, some of them with pieces of other texts."""
    data = bytearray(text)
    for _ in range(draw.choice([1, 1, 2, 3, 6])):
        at, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        end = min(end, at + 40)
        kind = draw.randrange(8)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end] * draw.choice([1, 2, 20])
        elif kind == 3:
            data[at:at] = draw.choice(TOKENS).encode()
        elif kind == 4:
            data[at:end] = draw.choice(TOKENS).encode()
        elif kind == 5:
            other = draw.choice(others)
            start = draw.randrange(len(other))
            data[at:end] = other[start : start + draw.randrange(60)]
        elif kind == 6:
            lines = bytes(data).split(b"\n")
            draw.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        else:
            data[at:end] = draw.randbytes(draw.randrange(12))
    return bytes(data)


def random_bytes(draw: random.Random) -> bytes:
    """Bytes that nobody wrote, or only characters that mean something in YAML."""
    if draw.random() < 0.5:
        return draw.randbytes(draw.randrange(200))
    letters = "abc:-[]{},#&*!|>'\"%@` \n\t0129.~=<"
    return "".join(draw.choices(letters, k=draw.randrange(80))).encode()


@contextmanager
def soon(seconds=20.0):
    """Fails where something hangs."""

    def ring(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(read, given):
    """Whether it was read; anything but a value or a sentence fails the test."""
    try:
        with soon():
            read(given)
    except AllocsearchError:
        return False
    except BaseException as error:
        raise AssertionError(f"{given!r:.1000} raised {error!r}") from error
    return True


def try_all(read, seed, n, valid, share_of_noise=0.1):
    """Broken forms of valid texts; returns how many were read and how many refused."""
    draw = random.Random(seed)
    counts = {True: 0, False: 0}
    for _ in range(n):
        noise = draw.random() < share_of_noise
        data = random_bytes(draw) if noise else mutated(draw, draw.choice(valid), valid)
        counts[outcome(read, data)] += 1
    return counts[True], counts[False]


CONFIGS = [
    b"""task: {name: sokoban, data: levels}
budgets: [tiny, 250M]
experts:
  - name: conv_lstm
    options: {pool: true, boundary: zeros}
    arms: recurrent
  - mlp
seed: 3
name: my-study
space: {depths: [1, 2, 4], n_experts: 1, radii: [0, 1, full], tolerance: 0.1}
search: {mode: search, n_trials: 40, learning_rates: [1.0e-3, 3.0e-4]}
training:
  horizon: 200000
  learning_rate: 1.0e-3
output:
  directory: studies
  keep: front
  storage: postgresql://me@host/db
""",
    b"task: sokoban\nbudgets: tiny\n",
    b"training: {horizon: 20}\nseed: 4\n",
]
SETTINGS = [
    *(b"training.learning_rate=3e-4", b"task.data=x", b"space.depths=[1,2]"),
    *(b"search={mode: claim}", b"budgets=250M", b"name=x", b"output.keep=3"),
]
LEVELS = [
    b"; 1\n#####\n#@$.#\n#####\n\n; 2\n#####\n#@$.#\n#####\n",
    b"Title: x\n\n  #####\n###   #\n#.@$  #\n### $.#\n#.##$ #\n# # . ##\n"
    b"#$ *$$.#\n#   .  #\n########\nAuthor: y\n\n5#|#@$.#|5#|\n"
    b"Comment:\n###\nComment-End:\n",
    b"::a\n5#|#-2$-#\n#_@..#|6#\n",
]


def test_configs(tmp_path):
    path = tmp_path / "study.yaml"

    def read(data):
        path.write_bytes(data)
        config = load_config(path)
        assert config.study_name
        json.dumps(config.given())

    n_read, n_refused = try_all(read, 0, 5000, CONFIGS)
    assert n_read > 250
    assert n_refused > 2500


def test_settings():
    def read(data):
        load_config(settings=[data.decode("utf-8", "surrogateescape")])

    n_read, n_refused = try_all(read, 1, 1500, SETTINGS)
    assert n_read > 50
    assert n_refused > 500


def test_level_files(tmp_path):
    path = tmp_path / "levels.txt"

    def read(data):
        path.write_bytes(data)
        levels = read_levels(path)
        assert len(levels) > 0

    n_read, n_refused = try_all(read, 2, 5000, LEVELS)
    assert n_read > 200
    assert n_refused > 2500


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n"
        + "".join(
            f"b{i}: &{c} [{', '.join(['*' + p] * 9)}]\n"
            for i, (p, c) in enumerate(zip("abcdefgh", "bcdefghi", strict=True))
        ),
        "task: &a {name: sokoban, more: *a}",
        "task: &a [*a]",
        "!!timestamp task: sokoban",
        "budgets: [" + "[" * 20_000 + "]" * 20_000 + "]",
        "name: " + "x" * 10**6 + "/",
        "seed: " + "9" * 10_000,
        'name: "a\\e[31m"',
    ],
    ids=range(8),
)
def test_texts_that_unfold_or_nest_without_end(tmp_path, text):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert not outcome(load_config, path)
    outcome(lambda t: load_config(settings=[f"task={t}"]), text)


def test_numbers_of_flops():
    for text in ("1e999999999", "9" * 10_000, "1e-999999999", "-1e999M", "1e22"):
        assert not outcome(parse_flops, text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished study of one cell and two trials, made without training."""
    directory = tmp_path_factory.mktemp("studies") / "s"
    directory.mkdir()
    cell = "b/mlp/recurrent"
    search = SearchStudy.open(
        f"sqlite:///{directory / 'study.db'}",
        f"s/{cell}",
        Points((Axis("depth", (1, 2)),), ((0,), (1,))),
        directions=("maximize",),
        sampler="random",
        seed=0,
    )
    for _ in range(2):
        proposal = search.ask()
        result = TrialResult(
            "s",
            "t",
            "b",
            100,
            proposal.number,
            "complete",
            Allocation("mlp", True, proposal.values["depth"], 1, 8),
            (Objective("score", "points", "maximize"),),
            seeds=(SeedResult(0, {"score": 1.0}),),
            checkpoint=f"trials/{cell}/{proposal.number:05d}",
        )
        search.tell(proposal.number, [1.0], {"result": result.to_dict()})
    search.close()
    study = {
        "format": 1,
        "name": "s",
        "config": {"name": "s", "task": {"name": "t"}, "budgets": ["b"]},
        "seed": 0,
        "cells": [cell],
        "n_trials": {cell: 2},
        "settings": {"b": {"search": {"mode": "search"}}},
        "data": {"b": {"test": {"n": 3}}},
        "environment": {},
    }
    (directory / "study.json").write_text(json.dumps(study, indent=1))
    finalists = [{"key": cell.split("/"), "number": 0, "metrics": {"score": 1.0}}]
    (directory / "finalists.json").write_text(json.dumps(finalists))
    return directory


def look(directory):
    study = load_study("s", directory.parent)
    study_standing(study)
    study.finalists()
    for trial in study.trials():
        study.checkpoint_at(trial.checkpoint)


def test_a_studys_files(finished, tmp_path, monkeypatch):
    directory = tmp_path / "s"
    shutil.copytree(finished, directory)
    assert outcome(look, directory)
    trials = load_study("s", tmp_path).trials()
    # Opening the database takes longer than all that is looked at here.
    monkeypatch.setattr(Study, "trials", lambda *_: trials)
    for seed, name in enumerate(("study.json", "finalists.json")):
        whole = (directory / name).read_bytes()

        def read(data, name=name):
            (directory / name).write_bytes(data)
            look(directory)

        _, n_refused = try_all(read, seed, 150, [whole])
        assert n_refused > 50
        values = json.loads(whole)
        draw = random.Random(seed)
        for _ in range(100):
            outcome(read, json.dumps(odd_value(draw, values)).encode())
        (directory / name).write_bytes(whole)


ODD = (None, -1, 10**30, 2.5, "", "x", [], [[]], {}, True, "../../etc", ["a/b/c"])


def odd_value(draw, values):
    """JSON with one value, anywhere in it, replaced by another."""
    if not isinstance(values, dict | list) or not values or draw.random() < 0.2:
        return draw.choice(ODD)
    where = draw.choice([*values]) if isinstance(values, dict) else 0
    changed = values.copy()
    changed[where] = odd_value(draw, values[where])
    return changed


def test_what_the_database_says_of_trials(finished, tmp_path, monkeypatch):
    directory = tmp_path / "s"
    shutil.copytree(finished, directory)
    study = load_study("s", tmp_path)
    (search_name,) = [f"s/{cell}" for cell in study.manifest["cells"]]
    search = SearchStudy.load(study.storage, search_name)
    records = search.records()
    search.close()
    stored = records[0].attributes["result"]
    draw = random.Random(0)
    group = {"seeds": stored["seeds"], "reason": "", "seconds": 1.0}
    notes = {"group/0/1": group, "group/0/-1": group}
    read = SimpleNamespace(
        name="s",
        records=lambda: records,
        annotations=lambda: notes,
        close=lambda: None,
    )
    monkeypatch.setattr(SearchStudy, "load", lambda *_: read)
    counts = {True: 0, False: 0}
    for _ in range(500):
        records[0].attributes["result"] = odd_value(draw, stored)
        counts[outcome(look, directory)] += 1
    records[0].attributes["result"] = stored
    assert outcome(look, directory)
    for _ in range(200):
        notes["group/0/1"] = odd_value(draw, group)
        counts[outcome(look, directory)] += 1
    assert counts[False] > 100

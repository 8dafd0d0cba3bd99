"""Configs: one sentence for what is wrong, every field within reach."""

import contextlib
import random

import pytest
from pydantic import BaseModel

from allocsearch.config import StudyConfig, load_config
from allocsearch.errors import AllocsearchError, ConfigError
from allocsearch.parsing import merge


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainin.horizon=3", "unknown field 'trainin': did you mean 'training'"),
        (
            "training.learnin_rate=3",
            "unknown field 'training.learnin_rate': did you mean 'learning_rate'",
        ),
        ("training.learning_rate=-1", "greater than 0"),
        ("training.n_seeds=two", "valid integer"),
        ("space.depths=[]", "at least one value"),
        ("space.radii=[wide]", "space.radii"),
        ("search.mode=fast", "'search', 'claim' or 'sweep'"),
        ("seed", "not of the form section.field=value"),
        ("=3", "not of the form"),
        ("seed=[", "not valid YAML"),
        ("task={budget: tiny}", "give the task's name"),
        ("name=a/b", "can be a folder's"),
        ("training.learning_rate=.nan", "finite"),
    ],
)
def test_a_wrong_setting_says_what_and_where(setting, message):
    with pytest.raises(ConfigError) as caught:
        load_config(None, [setting])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML at line"),
        ("- 1", "must be a mapping"),
        ("3: 4", "must be a mapping"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("seeed: 3", "did you mean 'seed'"),
    ],
)
def test_a_broken_file_says_which(tmp_path, text, message):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert "study.yaml" in str(caught.value)


def test_files_flags_and_settings_are_laid_over_each_other(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("task: sokoban\ntraining: {n_seeds: 2, horizon: 100}\nseed: 1\n")
    config = load_config(
        path, ["training.horizon=3e2", "task.n_envs=8"], base={"seed": 2}
    )
    assert config.seed == 2
    assert (config.training.n_seeds, config.training.horizon) == (2, 300)
    assert config.task == {"name": "sokoban", "n_envs": 8}


def test_one_value_stands_for_a_list_of_one():
    config = load_config(None, ["budgets=250M", "experts=mlp", "space.depths=4"])
    assert config.budgets == ("250M",)
    assert config.experts[0].name == "mlp"
    assert config.space.depths == (4,)


def test_every_field_is_documented():
    def fields(model, path=""):
        for name, field in model.model_fields.items():
            yield path + name, field
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from fields(inner, f"{path}{name}.")

    sections = {"space", "search", "training", "output", "execution"}
    for path, field in fields(StudyConfig):
        assert field.description or path in sections, path


def test_given_survives_yaml():
    config = load_config(None, ["training.horizon=5", "budgets=[tiny, 3M]"])
    assert load_config(base=config.given()) == config


def test_merge_leaves_its_arguments_alone():
    a, b = {"x": {"y": 1}}, {"x": {"z": 2}}
    assert merge(a, b) == {"x": {"y": 1, "z": 2}}
    assert (a, b) == ({"x": {"y": 1}}, {"x": {"z": 2}})


def test_no_text_gives_a_traceback(tmp_path):
    """Whatever a file holds, the answer is a config or one of our errors."""
    draw = random.Random(0)
    base = "task: {name: sokoban}\nbudgets: [tiny]\nspace: {depths: [1, 2]}\nseed: 3\n"
    path = tmp_path / "study.yaml"
    for _ in range(2_000):
        text = list(base)
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(text))
            text[at] = chr(
                draw.choice([draw.randrange(32, 127), draw.randrange(0x2FF)])
            )
        path.write_text("".join(text), encoding="utf-8", newline="")
        with contextlib.suppress(AllocsearchError):
            load_config(path)

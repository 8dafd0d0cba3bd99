"""`allocsearch watch`: items of data, and what networks do with them."""

import pytest
from PIL import Image

from allocsearch import checkpoint
from allocsearch.allocation import Allocation
from allocsearch.candidate import Candidate, describe_candidate
from allocsearch.cli.viewing import labels
from allocsearch.config import TrainingConfig
from allocsearch.tasks.resolve import build_task

LEVELS = "#####\n#@$.#\n#####\n\n######\n#@ $.#\n######\n"
LIMIT = 5


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Checkpoints of two untrained networks, and a file of two levels."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "two.xsb").write_text(LEVELS)
    fields = {
        "levels": {"interior": [3, 4], "n_boxes": 1, "n_train": 5},
        "environment": {"keep_border": False, "evaluation_step_limit": LIMIT},
    }
    fields["levels"] |= {"n_valid": 3, "n_test": 2}
    for name, levels_seed, width in (("a/run", 0, 4), ("b/run", 0, 5), ("c", 1, 4)):
        fields["levels"]["seed"] = levels_seed
        task, config = build_task("sokoban", fields)
        allocation = Allocation("conv_glu", True, 1, 1, width)
        candidate = Candidate(allocation, TrainingConfig(horizon=1), (3, 4), config)
        state = task.init_trained(allocation, candidate.training, candidate.seeds)
        metadata = {"candidate": describe_candidate(candidate), "steps": 0}
        checkpoint.save(folder / name, state, metadata)
    return folder


def test_an_episode_in_the_terminal_and_as_json(cli, places):
    shown = cli("watch", places / "a/run", "--item", "1", env={"COLUMNS": "200"})
    assert shown.code == 0, shown.err
    (found,) = cli("watch", places / "a/run", "--item", "1", "--json").json
    assert (found["label"], found["seed"]) == ("a/run", 3)
    assert (found["split"], found["index"]) == ("valid", 1)
    assert len(found["boards"]) == len(found["steps"]) + 1 <= LIMIT + 1
    assert shown.out.count("value") == len(found["steps"])
    for t, step in enumerate(found["steps"]):
        assert f"step {t}   value {step['value']:.2f}" in shown.out
        assert step["action"] in step["probabilities"]
    for row in found["boards"][0]:
        assert row in shown.out
    assert "\x1b[" not in shown.out


def test_two_networks_side_by_side(cli, places, tmp_path):
    both = (places / "a/run", places / "b/run")
    alone = cli("watch", both[0], "--out", tmp_path / "one.gif", "--json")
    assert alone.code == 0, alone.err
    answer = cli("watch", *both, "--out", tmp_path / "both.gif", "--json")
    assert [found["label"] for found in answer.json] == ["a", "b"]
    longest = max(len(found["boards"]) for found in answer.json)
    with Image.open(tmp_path / "both.gif") as image:
        assert image.n_frames == longest
        width, height = image.size
    with Image.open(tmp_path / "one.gif") as image:
        assert image.n_frames == len(alone.json[0]["boards"])
        assert image.size[1] == height
        assert image.size[0] < width < 2 * image.size[0]
    answer = cli("watch", *both, "-o", tmp_path / "both.png")
    assert (answer.code, answer.out) == (0, "")
    assert f"{longest} pictures of {width} by {height}" in answer.err
    with Image.open(tmp_path / "both.png") as image:
        assert image.format == "PNG"
        assert image.size[1] >= height


def test_other_data_than_a_network_was_trained_on(cli, places):
    # The network's boards are 3x4, these are 1x3 and 1x4 within their borders.
    args = ("--data", places / "two.xsb", "--json")
    (found,) = cli("watch", places / "a/run", *args).json
    assert found["boards"][0] == ["#####", "#@$.#", "#####"]
    assert found["split"] == "test"


def test_thinking_and_sampling(cli, places):
    settings = ("task.evaluation.thinking_steps=2", "task.evaluation.policy=sampled")
    args = ("watch", places / "a/run", *(x for s in settings for x in ("--set", s)))
    answer = cli(*args, env={"COLUMNS": "200"})
    assert answer.code == 0, answer.err
    assert answer.out.index("thinking 0") < answer.out.index("thinking 1")
    assert answer.out.index("thinking 1") < answer.out.index("step 0")
    (found,) = cli(*args, "--json").json
    assert len(found["thoughts"]) == 2
    assert len(found["boards"]) == len(found["steps"]) + 1


def test_an_item_alone(cli, places, tmp_path):
    args = ("watch", "--task", "sokoban", "--data", places / "two.xsb", "--item", "1")
    answer = cli(*args)
    assert answer.code == 0, answer.err
    rows = [line.strip() for line in answer.out.splitlines()]
    assert LEVELS.split("\n\n")[1].strip() in "\n".join(rows)
    assert cli(*args, "--out", tmp_path / "level.png").code == 0
    with Image.open(tmp_path / "level.png") as image:
        assert image.size[0] >= 6 * 24


def test_an_item_with_a_name(cli, tmp_path):
    text = LEVELS.replace("\n\n", "\nTitle: [b]First[/b]\nAuthor: A. Nyone\n\n")
    (tmp_path / "a.sok").write_text(text)
    args = ("watch", "--task", "sokoban", "--data", tmp_path / "a.sok")
    assert "[b]First[/b] by A. Nyone" in cli(*args).out
    (found,) = cli(*args, "--json").json
    assert (found["title"], found["author"]) == ("[b]First[/b]", "A. Nyone")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "give a checkpoint, or --task"),
        (("nowhere",), "there is no checkpoint at nowhere"),
        (("{}/a/run", "--item", "3"), "no level 3 in split 'valid', only 0 to 2"),
        (("{}/a/run", "--item", "-1"), "no level -1 in split 'valid'"),
        (("{}/a/run", "--split", "vald"), "did you mean 'valid'?"),
        (("{}/a/run", "--out", "film.mp4"), "ending in .gif or .png"),
        (("{}/a/run", "--out", "missing/film.gif"), "there is no folder missing"),
        (("{}/a/run", "{}/c"), "different data"),
        (
            ("--task", "sokoban", "--data", "{}/two.xsb", "--split", "train"),
            "no 'train' split of levels, only test",
        ),
        (("--task", "statetrack"), "has no items to look at"),
    ],
)
def test_what_cannot_be_watched(cli, places, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    answer = cli("watch", *(arg.format(places) for arg in args))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert not list(tmp_path.iterdir())


def test_trials_of_a_study_are_found(cli, finished):
    study, *where = finished.at
    answer = cli("watch", f"{study}/recurrent/best", *where)
    assert answer.code == 2
    assert "task 'statetrack' has no items to look at" in answer.err
    assert "has no trial" in cli("watch", f"{study}/recurrent/99", *where).err
    assert "say which trial" in cli("watch", study, *where).err
    path = finished.directory / study / "recurrent" / "best"
    assert "no items to look at" in cli("watch", path).err


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x/y/z"], ["y/z"]),
        (["z"], ["z"]),
        (["s/recurrent/best", "s/nonrecurrent/best"], ["recurrent", "nonrecurrent"]),
        (["s/tiny/3", "s/tiny/4"], ["3", "4"]),
        (["a", "s/a"], ["a", "s/a"]),
        (["a", "a/"], ["a", "a"]),
    ],
)
def test_labels_are_what_tells_checkpoints_apart(names, expected):
    assert labels(names) == expected

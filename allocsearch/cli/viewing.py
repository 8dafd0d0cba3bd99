"""One item of a task's data, and what trained networks do with it, to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.columns import Columns
from rich.padding import Padding
from rich.text import Text

from allocsearch import checkpoint
from allocsearch.analysis.formats import arm_label, plain
from allocsearch.candidate import describe_checkpoint, load_networks
from allocsearch.checkpoint import Place
from allocsearch.cli.flags import Flags
from allocsearch.cli.printing import note, show, show_json, stderr
from allocsearch.cli.scoring import is_study, locate, task_fields
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.tasks.pictures import beside, check_suffix, save
from allocsearch.tasks.records import Showing
from allocsearch.tasks.resolve import build_task

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Asked:
    """What a user wants to see.

    Attributes:
        index: which item of the split, from 0.
        split: one of `SPLITS`, or None for the task's choice.
        flags: task and data, over those that a checkpoint was trained on.
        settings: ``task.field=value``, likewise.
    """

    index: int
    split: str | None
    flags: Flags
    settings: Sequence[str]

    def __post_init__(self):
        if self.split is not None and self.split not in SPLITS:
            raise unknown_name("split", self.split, SPLITS)


@dataclass(frozen=True)
class View:
    """A showing, and whose it is.

    Attributes:
        title: a line of text about it.
        showing: what the task showed.
        about: the same as the title, JSON-ready.
    """

    title: str
    showing: Showing
    about: dict[str, Any]


def find_checkpoint(name: str, directory: Path) -> Place:
    """The folder of a checkpoint, given as such or as STUDY/TRIAL.

    Raises:
        CheckpointError, StudyError, ConfigError: there is none.
        NothingToDo: the trial has trained nothing.
    """
    parts = name.split("/")
    if not checkpoint.exists(checkpoint.as_place(name)):
        for cut in range(len(parts) - 1, 0, -1):
            study, trial = "/".join(parts[:cut]), "/".join(parts[cut:])
            if study and trial and is_study(study, directory):
                return locate(study, trial, directory)
    if is_study(name, directory):
        raise ConfigError(
            f"{name} is a study: say which trial, as in {name}/recurrent/best"
        )
    return locate(name, None, directory)


def watch(
    names: Sequence[str], directory: Path, asked: Asked, out: Path | None, as_json: bool
) -> None:
    """Print or draw an item alone, or what each of several checkpoints does with it.

    Args:
        names: checkpoints, as `find_checkpoint` takes them.
        directory: where studies are.
        asked: which item.
        out: a .gif or .png file to write instead of printing.
        as_json: whether stdout is to be JSON.

    Raises:
        ConfigError: the task shows no such item, or draws none; or the networks would
            be shown different items.
    """
    if out is not None:
        check_suffix(out)
    paths = [find_checkpoint(name, directory) for name in names]
    with stderr().status("playing"):
        views = [
            _view_trained(path, label, asked)
            for path, label in zip(paths, labels(names), strict=True)
        ] or [_view_alone(asked)]
    for view in views[1:]:
        if view.showing.item != views[0].showing.item:
            raise ConfigError(
                f"{views[0].about['label']} and {view.about['label']} were trained on "
                f"different data, so their item {asked.index} is not the same: give "
                "both the same with --data or --set"
            )
    if out is not None:
        _write(out, views)
    if as_json:
        show_json([{**view.about, **view.showing.details} for view in views])
    elif out is None:
        for view in views:
            _print(view)


def labels(names: Sequence[str]) -> list[str]:
    """The parts of checkpoints' names that tell them apart; of one, the last two."""
    parts = [plain(name).rstrip("/").split("/") for name in names]
    if len(parts) == 1:
        return ["/".join(parts[0][-2:])]
    for end in (0, -1):
        while len({own[end] for own in parts}) == 1 and min(map(len, parts)) > 1:
            for own in parts:
                own.pop(end)
    return ["/".join(own) for own in parts]


def _view_alone(asked: Asked) -> View:
    fields = task_fields({}, asked.flags, asked.settings)
    if "name" not in fields:
        raise ConfigError(
            "nothing says what to show: give a checkpoint, or --task for an item alone"
        )
    task, _ = build_task(fields.pop("name"), fields)
    label = f"item {asked.index}"
    showing = task.show_item(asked.index, label=label, split=asked.split)
    about = {"label": label, "index": asked.index, "split": asked.split}
    return View(f"Item {asked.index} of task {task.name}", showing, about)


def _view_trained(path: Place, label: str, asked: Asked) -> View:
    candidate, steps = describe_checkpoint(path, note)
    fields = task_fields(candidate.task, asked.flags, asked.settings)
    task, _ = build_task(fields.pop("name"), fields)
    state = load_networks(path, task, most=1)
    showing = task.show_item(asked.index, label=label, state=state, split=asked.split)
    allocation, seed = candidate.allocation, candidate.seeds[0]
    title = (
        f"{label}: {arm_label(allocation.arm)} {allocation.label}, trained for "
        f"{steps} {task.unit}, seed {seed}"
    )
    about = {
        "label": label,
        "checkpoint": str(path),
        "steps_trained": steps,
        "seed": seed,
        "index": asked.index,
        "split": asked.split,
    }
    return View(title, showing, about)


def _write(out: Path, views: Sequence[View]) -> None:
    films = [view.showing.frames for view in views]
    if not all(films):
        raise ConfigError("the task draws no pictures: leave out --out to print it")
    film = beside(films)
    save(out, film)
    height, width = film[0].shape[:2]
    note(f"{out}: {len(film)} pictures of {width} by {height} pixels")


def _print(view: View) -> None:
    texts = view.showing.texts
    show(Text(plain(view.title), style="bold"))
    if view.showing.name:
        show(Text(plain(view.showing.name)))
    show(Padding(Columns(texts, padding=(1, 3)), (1, 0)))

"""What a user asks for: typed, frozen, parsed once at the edge.

Every field can be set in YAML and, as ``--set training.learning_rate=3e-4``, on the
command line. A field left out takes the task's value for the budget, then the default
written here.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from allocsearch.allocation import ARMS, DEFAULT_AGGREGATION, Scalar
from allocsearch.errors import redacted
from allocsearch.parsing import Count, Section, merge, parse, parse_setting, read_yaml

Arm = Literal["recurrent", "nonrecurrent"]


def _as_tuple(value: Any) -> Any:
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping | bytes):
        return tuple(value)
    return (value,)


def _as_widths(value: Any) -> Any:
    return value if isinstance(value, str) else _as_tuple(value)


def _as_named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


def _as_named_tuple(value: Any) -> Any:
    return tuple(_as_named(item) for item in _as_tuple(value))


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values without repetition; at least one."""
    if not values:
        raise ValueError("give at least one value")
    return tuple(dict.fromkeys(values))


Several = BeforeValidator(_as_tuple)


class ExpertConfig(Section):
    """One kind of expert to search over."""

    name: str
    """Name of an installed expert."""
    options: dict[str, Scalar] = Field(default={})
    """Options of that expert."""
    arms: Annotated[tuple[Arm, ...], Several] = ARMS
    """Which arms use it."""


class SpaceConfig(Section):
    """The axes that are enumerated; width follows from the budget."""

    depths: Annotated[tuple[Count, ...], Several] = (1, 2, 4, 8, 16, 32)
    """Levels L to try."""
    n_experts: Annotated[tuple[Count, ...], Several] = (1, 2, 4, 8, 16, 32, 64)
    """Experts E to try."""
    radii: Annotated[
        tuple[Annotated[int, Field(ge=0)] | Literal["full"], ...], Several
    ] = ("full",)
    """Communication radii to try; those of E − 1 or more are "full"."""
    aggregations: Annotated[tuple[str, ...], Several] = (DEFAULT_AGGREGATION,)
    """Aggregations to try."""
    widths: Annotated[
        tuple[Count, ...] | Literal["largest", "all"], BeforeValidator(_as_widths)
    ] = "largest"
    """`largest` takes the widest that fits; `all` every one within the tolerance."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] | None = None
    """How far below the budget still counts as spending it; its own if unset."""
    granule: Count | None = None
    """Widths are multiples of this; the budget's own if unset."""
    scope: Literal["core", "total"] = "core"
    """What the budget binds: the experts alone, or encoder and head as well."""
    update: Literal["residual", "replace"] = "residual"
    """Whether a level adds to the state or replaces it."""
    nonrecurrent_form: Literal["source", "trimmed"] = "source"
    """Whether non-recurrent networks keep, and pay for, paths that are always zero."""

    @field_validator("depths", "n_experts", "radii", "aggregations")
    @classmethod
    def _not_empty(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return _some(value)


EXTENDED = {"n_trials", "timeout", "max_cost"}
"""Fields of a search that a study may be given more of later."""


class SearchConfig(Section):
    """How candidates are proposed."""

    mode: Literal["search", "claim", "sweep"] = "search"
    """`search` adapts to results; `claim` tries the same number at every depth; `sweep`
    tries every combination of the axes, with work only bounded from above."""
    sampler: str | None = None
    """Which sampler proposes in search mode: auto, gp, tpe, nsga2, random or grid; auto
    if unset, in a sweep grid."""
    sampler_options: dict[str, Scalar] = Field(default={})
    """Options of that sampler, such as n_startup; see docs/search.md."""
    n_trials: Count | None = None
    """Trials of the study over all restarts, split evenly over budgets and arms."""
    timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds that the study may run, over all restarts."""
    max_cost: Annotated[float, Field(gt=0)] | None = None
    """Device-hours that trials may take, over all restarts, as measured."""
    objectives: Annotated[tuple[str, ...], Several] = ()
    """The task's own objectives and costs to improve together; its first if empty."""
    learning_rates: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Several] = ()
    """Learning rates to search per allocation; empty keeps training.learning_rate."""
    fields: dict[str, Annotated[tuple[Scalar, ...], Several]] = Field(default={})
    """Further training fields to search, as in `{training.b2: [0.95, 0.99]}`."""
    rungs: Literal["none", "halving", "hyperband"] = "none"
    """Whether trials pause on the way, and only the best of them go on."""
    first_rung: Annotated[float, Field(gt=0, lt=1)] = 1 / 9
    """The fraction of the horizon after which a trial pauses first, at the least."""
    reduction: Annotated[int, Field(ge=2)] = 3
    """One in how many goes on from a rung, and how many times longer it trains then."""
    warm_start: Annotated[int, Field(ge=0)] = 0
    """How many of the best allocations of smaller budgets a budget begins with."""
    race_groups: Annotated[int, Field(ge=0)] = 0
    """Most groups of further seeds that trials get which may yet be the best."""
    confirm_seeds: Annotated[int, Field(ge=0)] | None = None
    """Fresh seeds that the best of each arm is trained with; n_seeds if unset."""


class TrainingConfig(Section):
    """How one candidate is trained; the same for both arms."""

    horizon: Count | None = None
    """Length of training per seed, in the task's unit."""
    n_seeds: Count = 3
    """Training runs per candidate."""
    seeds_together: bool | None = None
    """Train all seeds in one program; if unset, on accelerators but not on CPUs."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What training computes in; parameters and evaluation stay in float32."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon` trains matrices of the experts with Muon, and all else with AdamW."""
    accumulation: Count = 1
    """Parts that a batch is worked through in, one after the other, for one update."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """At width 64, one expert and one level; other shapes are scaled from it."""
    adam_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """The same of what Muon does not train; learning_rate if unset. Of no effect
    where AdamW trains everything."""
    scale_learning_rate: bool = True
    """Scale it with d, E and L; if false, every parameter has the rate as it stands."""
    warmup: Annotated[int, Field(ge=0)] = 50
    """Updates over which the learning rate rises from zero."""
    cooldown: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Last part of the horizon over which the learning rate falls."""
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the learning rate that the fall ends at."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are clipped to this global norm."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Muon's decay of the moment, which is Nesterov's."""
    b1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Adam's decay of the first moment."""
    b2: Annotated[float, Field(ge=0, lt=1)] = 0.98
    """Adam's decay of the second moment."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Adam's epsilon."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay of matrices, as a multiple of the learning rate."""
    n_evaluations: Count = 10
    """Evaluations over the horizon, evenly spaced; the curve of a trial."""


class OutputConfig(Section):
    """Where a study lives."""

    directory: str = "studies"
    """Each study has a folder of its own in here."""
    storage: str | None = None
    """SQLAlchemy URL of the trials; a SQLite file in the study's folder if unset."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    """Least time between checkpoints of a trial in training."""
    checkpoints: str | None = None
    """Folder or fsspec URL, as s3://bucket/x, of checkpoints; the study's if unset."""
    keep: Annotated[int, Field(ge=0)] | Literal["front", "all", "none"] = "front"
    """Finished trials that keep theirs: the front, all, none, or so many per arm."""
    checkpoint_quota: Annotated[int, Field(ge=0)] | None = None
    """Bytes that checkpoints of finished trials may take; the best stay longest."""

    @field_validator("checkpoints")
    @classmethod
    def _has_no_password(cls, value: str | None) -> str | None:
        if value is not None and redacted(value) != value:
            raise ValueError(
                "keep the password out: fsspec reads it from the environment or from "
                "its own files"
            )
        return value


class ExecutionConfig(Section):
    """Where trials are trained; it is no part of what a study is, so it may change."""

    executor: Literal["inline", "local", "ray"] = "inline"
    """`inline` in this process, `local` in worker processes, `ray` on a Ray cluster."""
    n_workers: Count = 1
    """Trials at a time, for `local` and `ray`."""
    cpus_per_trial: Annotated[float, Field(gt=0)] | None = None
    """Cores of a trial; an equal share of this machine's if unset, on Ray 1."""
    gpus_per_trial: Annotated[float, Field(ge=0)] | None = None
    """GPUs of a trial; if unset one each where there are any, on Ray none."""
    address: str | None = None
    """Ray cluster: `auto`, HOST:PORT, or one started here if unset."""
    lease_seconds: Annotated[float, Field(ge=1)] = 60.0
    """How long a silent worker keeps its trials from the others, in a shared study."""

    @model_validator(mode="after")
    def _inline_is_alone(self) -> Self:
        if self.executor == "inline" and self.n_workers > 1:
            raise ValueError(
                f"the inline executor trains one trial at a time, not {self.n_workers}:"
                " give `--executor local`"
            )
        return self


class StudyConfig(Section):
    """A whole study."""

    task: Annotated[dict[str, Any], BeforeValidator(_as_named)] = Field(
        default={"name": "sokoban"}
    )
    """The task's name, and its own fields beside it (`allocsearch show-config`)."""
    budgets: Annotated[
        tuple[Annotated[str, BeforeValidator(_as_text)], ...], Several
    ] = ("tiny",)
    """Named budgets of the task, or FLOPs such as 250M."""
    recipe: str | None = None
    """A set of training values that the task has a name for, under all others given."""
    plugins_only: Annotated[tuple[str, ...], Several] | None = None
    """Distributions whose plug-ins may be imported, beside this one; all if unset."""
    experts: Annotated[tuple[ExpertConfig, ...], BeforeValidator(_as_named_tuple)] = ()
    """Kinds of experts; the task's own choice if empty."""
    arms: Annotated[tuple[Arm, ...], Several] = ARMS
    """Recurrent, non-recurrent or both."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Decides proposals, initialisation, data order and environments."""
    name: str | None = None
    """Name of the study and its folder; task and budgets if unset."""
    space: SpaceConfig = SpaceConfig()
    search: SearchConfig = SearchConfig()
    training: TrainingConfig = TrainingConfig()
    output: OutputConfig = OutputConfig()
    execution: ExecutionConfig = ExecutionConfig()

    @field_validator("budgets", "arms")
    @classmethod
    def _not_empty(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return _some(value)

    @field_validator("task")
    @classmethod
    def _task_has_name(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("name"), str):
            raise ValueError("give the task's name, as in `task: sokoban`")
        return value

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, value: str | None) -> str | None:
        if value is not None and (
            value in ("", ".", "..")
            or set(value) & set('/\\:*?"<>|')
            or not value.isprintable()
        ):
            raise ValueError("give a name that can be a folder's")
        return value

    @property
    def study_name(self) -> str:
        """The name, or one made of task and budgets."""
        return self.name or "-".join([self.task["name"], *self.budgets])

    def given(self) -> dict[str, Any]:
        """The fields that were set by the user, as JSON-ready values."""
        return self.model_dump(mode="json", exclude_unset=True)


def load_config(
    path: str | Path | None = None,
    settings: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
) -> StudyConfig:
    """A study's config from a YAML file, flags and ``key=value`` settings.

    Args:
        path: a YAML file, or None.
        settings: ``"training.learning_rate=3e-4"``; values are read as YAML.
        base: values laid over the file and under the settings, as from flags.

    Raises:
        ConfigError: the file cannot be read or a field is wrong.
    """
    layers = [read_yaml(path) if path is not None else {}, dict(base or {})]
    layers = [_normalised(layer) for layer in layers]
    layers += [_normalised(parse_setting(setting)) for setting in settings]
    config = parse(StudyConfig, merge(*layers), str(path or ""))
    assert isinstance(config, StudyConfig)
    return config


def _normalised(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Short forms written out, so that layers merge field by field."""
    task = layer.get("task")
    return {**layer, "task": {"name": task}} if isinstance(task, str) else dict(layer)

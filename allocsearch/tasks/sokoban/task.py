"""Sokoban as a task: actor–critic training on device, evaluation on levels."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from allocsearch.config import ExpertConfig
from allocsearch.errors import ConfigError, DataError
from allocsearch.model import Model
from allocsearch.parsing import Section
from allocsearch.results import Objective
from allocsearch.scaling import Optimizer, OptimizerState
from allocsearch.tasks.probes import Probed, ProbeRequest
from allocsearch.tasks.records import DataReport, NamedBudget, Recipe, Scores, Showing
from allocsearch.tasks.sokoban import data
from allocsearch.tasks.sokoban.actor_critic import actor_critic_loss
from allocsearch.tasks.sokoban.budgets import BUDGETS
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.evaluation import Episodes, play, play_randomly
from allocsearch.tasks.sokoban.inspection import inspect_levels
from allocsearch.tasks.sokoban.level_notes import LevelNotes
from allocsearch.tasks.sokoban.modules import ENCODERS, FlattenHead, PoolHead
from allocsearch.tasks.sokoban.playback import play_level
from allocsearch.tasks.sokoban.probing import probe_network
from allocsearch.tasks.sokoban.recipes import RECIPES
from allocsearch.tasks.sokoban.rollout import Experience, Stream, start, unroll
from allocsearch.tasks.sokoban.showing import show_episode, show_level
from allocsearch.tasks.sokoban.stacked_encoder import StackedEncoder
from allocsearch.tasks.trained import Run, TrainedTask


class Sokoban(TrainedTask):
    """Pushing boxes onto goals, one board a step."""

    name: ClassVar[str] = "sokoban"
    Config: ClassVar[type[Section]] = SokobanConfig
    budgets: ClassVar[Mapping[str, NamedBudget]] = BUDGETS
    experts: ClassVar[tuple[ExpertConfig, ...]] = (ExpertConfig(name="conv_lstm"),)
    objectives: ClassVar[tuple[Objective, ...]] = (
        Objective("return", "return", "maximize"),
        Objective("solved_fraction", "fraction", "maximize"),
    )
    unit: ClassVar[str] = "environment steps"
    final_window: ClassVar[int] = 5
    recipes: ClassVar[Mapping[str, Recipe]] = RECIPES

    def __init__(self, config: SokobanConfig):
        """See `Task.__init__`."""
        self.config = config
        # Levels are generated on first use, so that a space is listed without them.
        self._splits = data.load_splits(config)
        self.environment = Environment.from_config(
            config.environment, self._splits.shape
        )
        self._evaluation = replace(
            self.environment, step_limit=config.environment.evaluation_step_limit
        )
        self.levels = cache(self._device_levels)
        self._baseline = cache(self._play_randomly)

    @property
    def positions(self) -> tuple[int, ...]:
        """Height and width of what the agent sees."""
        return self.environment.shape

    @property
    def observation(self) -> jax.ShapeDtypeStruct:
        """One-hot planes, or colours."""
        return self.environment.observed

    @property
    def steps_per_chunk(self) -> int:
        """Environment steps of one chunk, over all environments."""
        config = self.config
        return config.n_envs * config.unroll * config.unrolls_per_chunk

    @property
    def updates_per_chunk(self) -> int:
        """See `TrainedTask.updates_per_chunk`."""
        config = self.config
        return config.unrolls_per_chunk * config.n_epochs * config.n_minibatches

    def encoder(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """See `Task.encoder`."""
        network = self.config.network
        kernel, n_more = network.encoder_kernel, network.encoder_layers - 1
        encoder = ENCODERS[self.config.environment.observation]
        first = encoder(width, kernel, key=key)
        if n_more == 0:
            return first
        stack_key = jax.random.fold_in(key, 1)
        return StackedEncoder(first, n_more, width, kernel, key=stack_key)

    def head(self, width: int, *, key: PRNGKeyArray) -> eqx.Module:
        """See `Task.head`."""
        hidden, n_actions = self.config.network.head_hidden, self.environment.n_actions
        if self.config.network.head == "pool":
            return PoolHead(width, hidden, n_actions, key=key)
        n_positions = self.positions[0] * self.positions[1]
        return FlattenHead(width, n_positions, hidden, n_actions, key=key)

    def init_stream(self, model: Model, *, key: PRNGKeyArray) -> Stream:
        """See `TrainedTask.init_stream`."""
        return start(
            self.environment, self.levels("train"), model, self.config.n_envs, key=key
        )

    def chunk(self, run: Run, optimizer: Optimizer) -> tuple[Run, dict[str, Any]]:
        """See `TrainedTask.chunk`."""
        arrays, static = eqx.partition(run, eqx.is_array)

        def body(arrays: Any, _: None) -> tuple[Any, dict[str, Any]]:
            run, metrics = self._iteration(eqx.combine(arrays, static), optimizer)
            return eqx.filter(run, eqx.is_array), metrics

        arrays, metrics = jax.lax.scan(
            body, arrays, None, length=self.config.unrolls_per_chunk
        )
        mean = {name: jnp.mean(values) for name, values in metrics.items()}
        return eqx.combine(arrays, static), mean

    def score(self, model: Model, split: str) -> dict[str, float]:
        """See `TrainedTask.score`."""
        return self.score_each(model, split).metrics

    def score_each(self, model: Model, split: str) -> Scores:
        """See `TrainedTask.score_each`; items are the levels of the split."""
        config = self.config.evaluation
        episodes = play(model, self._evaluation, self.levels(split), config)
        metrics = {name: float(x) for name, x in episodes.metrics().items()}
        return Scores(metrics, episodes.by_level(), Episodes.MEANS)

    def training_scores(self, means: Mapping[str, float]) -> dict[str, float]:
        """See `Task.training_scores`: per episode that ended, where one did."""
        n_episodes = means["episodes_per_step"]
        scores = dict(means)
        if n_episodes > 0:
            scores["return"] = means["reward"] / n_episodes
            scores["solved_fraction"] = means["solves_per_step"] / n_episodes
        return scores

    def baseline(self, split: str = "valid") -> dict[str, float]:
        """The metrics of a uniformly random policy."""
        return dict(self._baseline(split))

    def manifest(self) -> dict[str, Any]:
        """Sources, sizes and hashes of the splits.

        Raises:
            DataError: the levels are for evaluation only.
        """
        for split in ("train", "valid"):
            if split not in self._splits:
                raise self._no_split(split)
        return data.describe(self._splits)

    @classmethod
    def inspect_data(cls, path: Path) -> DataReport:
        """See `Task.inspect_data`."""
        return inspect_levels(path)

    def show_item(
        self, index: int, *, label: str, state: PyTree = None, split: str | None = None
    ) -> Showing:
        """See `Task.show_item`: a level, or an episode on it."""
        name = split or ("valid" if "valid" in self._splits else "test")
        levels = self.levels(name)
        if not 0 <= index < len(levels):
            raise ConfigError(
                f"there is no level {index} in split {name!r}, only 0 to "
                f"{len(levels) - 1} (at most task.levels.n_{name} are read)"
            )
        if state is None:
            codes = self._splits[name].subset([index]).codes_with_player()[0]
            showing = show_level(codes, label)
        else:
            episode = play_level(
                state[1][0].model,
                self._evaluation,
                levels,
                index,
                self.config.evaluation,
            )
            actions, scale = self.environment.actions, self.config.loss.reward_scale
            showing = show_episode(episode, label, actions, scale)
        notes = self._splits[name].notes
        about = notes[index] if notes else LevelNotes()
        details = {"split": name, "title": about.title, "author": about.author}
        return replace(showing, details={**details, **showing.details}, name=about.name)

    def probe(self, state: PyTree, request: ProbeRequest, *, label: str) -> Probed:
        """See `Task.probe`: the directions in which squares will next be entered."""
        return probe_network(
            state[1][0].model,
            self._evaluation,
            self.levels("train"),
            self.levels(request.split),
            request,
            label=label,
            digest=self._splits[request.split].digest(),
        )

    def _device_levels(self, split: str) -> Levels:
        if split not in self._splits:
            raise self._no_split(split)
        return Levels.from_level_set(self._splits[split])

    def _no_split(self, split: str) -> DataError:
        return DataError(
            f"{self.config.data}: there is no {split!r} split of levels, only "
            f"{', '.join(self._splits)}"
        )

    def _play_randomly(self, split: str) -> dict[str, float]:
        episodes = play_randomly(self._evaluation, self.levels(split))
        return {name: float(x) for name, x in episodes.metrics().items()}

    def _iteration(
        self, run: Run, optimizer: Optimizer
    ) -> tuple[Run, dict[str, jax.Array]]:
        """One unroll and the updates that it feeds."""
        stream, experience = unroll(
            self.environment,
            self.levels("train"),
            optimizer.computing(run.model),
            run.stream,
            self.config.unroll,
        )
        model, state, parts = self._update(
            run.model, run.optimizer, experience, optimizer
        )
        metrics = {
            "reward": jnp.mean(experience.rewards),
            "solves_per_step": jnp.mean(experience.terminated),
            "episodes_per_step": jnp.mean(experience.terminated | ~experience.counts),
            **parts,
        }
        return Run(model, state, stream), metrics

    def _update(
        self,
        model: Model,
        state: OptimizerState,
        experience: Experience,
        optimizer: Optimizer,
    ) -> tuple[Model, OptimizerState, dict[str, jax.Array]]:
        config = self.config
        batches = split_environments(experience, config.n_minibatches)
        arrays, static = eqx.partition(model, eqx.is_array)

        def loss(model: Model, batch: Experience) -> tuple[jax.Array, dict]:
            return self._loss(optimizer.computing(model), batch)

        def body(carried: Any, batch: Experience) -> tuple[Any, dict[str, jax.Array]]:
            model, state = eqx.combine(carried[0], static), carried[1]
            gradient = eqx.filter_value_and_grad(loss, has_aux=True)
            (_, parts), gradients = gradient(model, batch)
            model, state = optimizer.update(gradients, state, model)
            return (eqx.filter(model, eqx.is_array), state), parts

        def epoch(carried: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
            return jax.lax.scan(body, carried, batches)

        (arrays, state), parts = jax.lax.scan(
            epoch, (arrays, state), None, length=config.n_epochs
        )
        return eqx.combine(arrays, static), state, jax.tree.map(jnp.mean, parts)

    def _loss(
        self, model: Model, batch: Experience
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one minibatch, from the carry at the start of its unroll."""
        replay = jax.vmap(model.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))
        _, outputs = replay(batch.carry, batch.observations, batch.begins)
        loss, parts = actor_critic_loss(outputs, batch, self.config.loss)
        if self.config.loss.head_penalty:
            head = jax.tree.leaves(eqx.filter(model.head, eqx.is_array))
            squares = sum(jnp.sum(jnp.square(x)) for x in head if x.ndim >= 2)
            loss += self.config.loss.head_penalty * squares
        return loss, parts


def split_environments(experience: Experience, n: int) -> Experience:
    """Minibatches of environments on a new leading axis."""

    def by_time(x: jax.Array) -> jax.Array:
        shaped = x.reshape(x.shape[0], n, -1, *x.shape[2:])
        return jnp.moveaxis(shaped, 1, 0)

    carry = jax.tree.map(lambda x: x.reshape(n, -1, *x.shape[1:]), experience.carry)
    timed = jax.tree.map(by_time, eqx.tree_at(lambda e: e.carry, experience, None))
    return eqx.tree_at(lambda e: e.carry, timed, carry, is_leaf=lambda x: x is None)

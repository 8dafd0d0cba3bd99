"""Probes of a network that plays Sokoban: for which squares it holds a plan, and when.

Appendix F of "Temporal Recurrence Favors Fewer Layers" (Anokhin et al., 2026), after
Bush et al., "Interpreting Emergent Planning in Model-Free Reinforcement Learning"
(2025): the direction in which the agent will next step onto each square, told from what
the network holds at a step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from allocsearch.errors import DataError, unknown_name
from allocsearch.model import Model
from allocsearch.tasks.probes import ProbeCounts, Probed, ProbeRequest
from allocsearch.tasks.sokoban.environment import Environment, Levels
from allocsearch.tasks.sokoban.probe_fitting import (
    Probe,
    calibrate,
    fit_probe,
    probabilities,
)
from allocsearch.tasks.sokoban.probe_labels import CLASSES, NEVER, TARGETS
from allocsearch.tasks.sokoban.trajectories import (
    READINGS,
    Trajectories,
    batch_size,
    play_greedily,
)

STEPS_KEPT = 40
"""Steps of one episode that probes are fitted on, drawn where it has more."""

_MOST_EPISODES, _EPISODES_PER_SQUARE = 3000, 60
_VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class _Player:
    """Plays the levels of any split with one network, and labels their squares."""

    label: str
    model: Model
    environment: Environment
    request: ProbeRequest
    n_at_once: int

    def play(
        self, levels: Levels, indices: np.ndarray
    ) -> Iterator[tuple[Trajectories, np.ndarray]]:
        """Batches of episodes, and their labels, `[B, T, H, W]`."""
        label = TARGETS[self.request.target]
        shape = self.environment.shape
        for played in play_greedily(
            self.model,
            self.environment,
            levels,
            indices,
            what=self.request.read,
            n_at_once=self.n_at_once,
        ):
            labels = label(played.players, played.boards, played.lengths, shape[1])
            yield played, labels.reshape(*labels.shape[:2], *shape)

    def tell(
        self, probe: Probe, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a probe says of every square of up to `n_at_once` episodes.

        Args:
            probe: of what is read.
            values: `[B, T, H, W, channels]`.

        Returns:
            The likeliest class, the likeliest direction, and its probability, each
            `[B, T, H, W]`.
        """
        # One shape for all batches compiles once.
        filled = np.zeros((self.n_at_once, *values.shape[1:]), values.dtype)
        filled[: len(values)] = values
        p = probabilities(probe, jnp.asarray(filled))
        directions = p[..., :NEVER]
        told = jnp.argmax(p, -1), jnp.argmax(directions, -1), jnp.max(directions, -1)
        likeliest, direction, score = jax.device_get(told)
        n = len(values)
        return likeliest[:n], direction[:n], score[:n]


def default_episodes(shape: tuple[int, int]) -> int:
    """Episodes to fit on for a board: 3 000, fewer for small boards."""
    return min(_MOST_EPISODES, _EPISODES_PER_SQUARE * shape[0] * shape[1])


def probe_network(
    model: Model,
    environment: Environment,
    train: Levels,
    held_out: Levels,
    request: ProbeRequest,
    *,
    label: str,
    digest: str,
) -> Probed:
    """Fit probes on training levels, and count what they tell on held-out ones.

    A fifth of the training levels takes no part in the fit, but sets the threshold of
    each probe, over the first `request.n_steps` steps. Of training levels only those
    that the network solves are used, as only such are compared: an agent that is stuck
    goes back and forth, and would be most of what is learnt of a weak one.

    Args:
        model: plays greedily, with a carry of zeros at the start of each level.
        environment: with the fixed step limit of evaluation.
        train: levels to fit on, drawn without replacement.
        held_out: levels to score on, each once.
        request: what to probe.
        label: names the network.
        digest: identifies the held-out levels.

    Raises:
        ConfigError: there is nothing to read at the level asked for.
        UnknownNameError: there is no such target.
        DataError: there are fewer than 10 training levels, or none of them is solved.
    """
    if request.target not in TARGETS:
        raise unknown_name("target of probes", request.target, TARGETS)
    if len(train) < 10:
        raise DataError(
            f"probes need 10 training levels or more to fit on, there are {len(train)}"
        )
    rng = np.random.default_rng(request.seed)
    n_episodes = request.n_episodes or default_episodes(environment.shape)
    drawn = rng.permutation(len(train))[:n_episodes]
    n_validation = max(1, round(_VALIDATION_SHARE * len(drawn)))
    validation, fitting = drawn[:n_validation], drawn[n_validation:]
    most = max(len(fitting), len(held_out))
    n_at_once = batch_size(model, environment, request.read, most)
    player = _Player(label, model, environment, request, n_at_once)
    probes, details = _fit(player, train, fitting, rng)
    thresholds = _thresholds(player, probes, train, validation)
    return _scored(player, probes, thresholds, held_out, digest, details)


def _fit(
    player: _Player, levels: Levels, indices: np.ndarray, rng: np.random.Generator
) -> tuple[dict[str, Probe], dict]:
    """A probe of each reading, and how much they were fitted on."""
    boards: dict[str, list[np.ndarray]] = {name: [] for name in READINGS}
    all_labels: list[np.ndarray] = []
    n_solved = 0
    for played, labels in player.play(levels, indices):
        kept = [_drawn_steps(int(n), rng) for n in played.lengths * played.solved]
        episodes = np.repeat(np.arange(len(kept)), [len(steps) for steps in kept])
        steps = np.concatenate(kept)
        for name, values in played.read.items():
            boards[name].append(values[episodes, steps])
        all_labels.append(labels[episodes, steps])
        n_solved += int(played.solved.sum())
    _refuse_unsolved(player, n_solved, len(indices))
    target = np.concatenate(all_labels)
    request = player.request
    probes = {}
    for name in READINGS:
        read = np.concatenate(boards.pop(name))
        probes[name] = fit_probe(read, target, kernel=request.kernel, seed=request.seed)
    details = {
        "n_played": len(indices),
        "n_fitted_episodes": n_solved,
        "n_fitted_steps": len(target),
        "n_channels": {name: int(p.weight.shape[2]) for name, p in probes.items()},
    }
    return probes, details


def _refuse_unsolved(player: _Player, n_solved: int, n_played: int) -> None:
    if n_solved == 0:
        raise DataError(
            f"{player.label} solves none of {n_played} training levels, so that there "
            "is nothing to learn from them: train it for longer, or play more levels"
        )


def _drawn_steps(length: int, rng: np.random.Generator) -> np.ndarray:
    if length <= STEPS_KEPT:
        return np.arange(length)
    return np.sort(rng.choice(length, STEPS_KEPT, replace=False))


def _thresholds(
    player: _Player, probes: dict[str, Probe], levels: Levels, indices: np.ndarray
) -> dict[str, tuple[float | None, float]]:
    """The threshold of each probe and its precision, on solved episodes."""
    n_steps, precision = player.request.n_steps, player.request.precision
    scores: dict[str, list[np.ndarray]] = {name: [] for name in READINGS}
    right: dict[str, list[np.ndarray]] = {name: [] for name in READINGS}
    n_solved = 0
    for played, labels in player.play(levels, indices):
        n_solved += int(played.solved.sum())
        live = _live(played, n_steps) & played.solved[:, None]
        labels = labels[:, :n_steps][live]
        for name, values in played.read.items():
            _, direction, score = player.tell(probes[name], values[:, :n_steps])
            scores[name].append(score[live].reshape(-1))
            right[name].append((direction[live] == labels).reshape(-1))
    _refuse_unsolved(player, n_solved, len(indices))
    return {
        name: calibrate(
            np.concatenate(scores[name]), np.concatenate(right[name]), precision
        )
        for name in READINGS
    }


def _scored(
    player: _Player,
    probes: dict[str, Probe],
    thresholds: dict[str, tuple[float | None, float]],
    levels: Levels,
    digest: str,
    details: dict,
) -> Probed:
    n_steps = player.request.n_steps
    counts: dict[str, list[tuple[np.ndarray, ...]]] = {name: [] for name in READINGS}
    solved, lengths = [], []
    for played, labels in player.play(levels, np.arange(len(levels))):
        live = _live(played, n_steps)
        solved.append(played.solved)
        lengths.append(played.lengths)
        for name, values in played.read.items():
            told = player.tell(probes[name], values[:, :n_steps])
            threshold = thresholds[name][0]
            counts[name].append(count(labels[:, :n_steps], *told, live, threshold))
    found = {}
    for name, parts in counts.items():
        targets, emitted, right, confusion = map(
            np.concatenate, zip(*parts, strict=True)
        )
        # Where episodes may not be so long there is nothing at later steps.
        missing = (0, 0), (0, n_steps - targets.shape[1])
        found[name] = ProbeCounts(
            *thresholds[name],
            targets=np.pad(targets, missing),
            emitted=np.pad(emitted, missing),
            right=np.pad(right, missing),
            confusion=confusion,
        )
    return Probed(
        items=digest,
        solved=np.concatenate(solved),
        lengths=np.concatenate(lengths),
        classes=CLASSES,
        details=details,
        **found,
    )


def _live(played: Trajectories, n_steps: int) -> np.ndarray:
    """bool `[B, steps]`, of the first n steps those that are of the episode."""
    n_steps = min(n_steps, played.players.shape[1] - 1)
    return np.arange(n_steps) < played.lengths[:, None]


def count(
    labels: np.ndarray,
    likeliest: np.ndarray,
    direction: np.ndarray,
    score: np.ndarray,
    live: np.ndarray,
    threshold: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The counts of `ProbeCounts` for some episodes: all but the threshold's.

    Args:
        labels: `[B, T, H, W]` indices of `CLASSES`.
        likeliest: the same shape, the likeliest class.
        direction: the same shape, the likeliest direction.
        score: the same shape, its probability.
        live: bool `[B, T]`, which steps count.
        threshold: of the score; None emits nothing.

    Returns:
        Targets, emitted, right and confusion.
    """
    live = live[:, :, None, None]
    target = (labels != NEVER) & live
    emitted = (score >= (np.inf if threshold is None else threshold)) & live
    right = emitted & (direction == labels)
    n = len(CLASSES)
    pairs = np.where(live, labels.astype(np.int64) * n + likeliest, n * n)
    confusion = np.stack(
        [np.bincount(p.reshape(-1), minlength=n * n + 1) for p in pairs]
    )
    per_step = tuple(x.sum(axis=(2, 3)) for x in (target, emitted, right))
    return *per_step, confusion[:, : n * n].reshape(-1, n, n)

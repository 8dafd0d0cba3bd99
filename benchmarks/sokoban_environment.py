"""Sokoban environment steps per second, against jumanji's, in one run.

Both step the same generated 10x10 four-box levels under a uniformly random policy,
vectorised over environments and jitted over steps, with automatic resets and a limit
of 120 steps. Rounds of all contenders are interleaved, so that a busy machine slows
all of them; figures are medians.

    python benchmarks/sokoban_environment.py --n-envs 1024 --n-steps 500
"""

# Before jumanji, which starts JAX's backend: the package sets flags of XLA.
import allocsearch  # noqa: F401

# isort: split
import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jumanji.environments.routing.sokoban import Sokoban as JumanjiSokoban
from jumanji.environments.routing.sokoban import constants as jumanji_codes
from jumanji.environments.routing.sokoban.generator import DeepMindGenerator
from jumanji.wrappers import AutoResetWrapper

from allocsearch.tasks.sokoban.environment import ACTIONS, Environment, Levels
from allocsearch.tasks.sokoban.generator import generate_levels
from allocsearch.tasks.sokoban.levels import LevelSet

STEP_LIMIT = 120
N_LEVELS = 10_000

Rollout = Callable[[jax.Array], jax.Array]


class _SameLevels(DeepMindGenerator):
    """jumanji's Boxoban generator over a given level set instead of a download."""

    def __init__(self, levels: LevelSet):
        fixed = jnp.where(levels.walls, jumanji_codes.WALL, jumanji_codes.EMPTY)
        fixed = jnp.where(levels.goals, jumanji_codes.TARGET, fixed)
        moving = jnp.where(levels.boxes, jumanji_codes.BOX, jumanji_codes.EMPTY)
        rows, columns = jnp.divmod(levels.players, levels.shape[1])
        moving = moving.at[jnp.arange(len(levels)), rows, columns].set(
            jumanji_codes.AGENT
        )
        self._fixed_grids = fixed.astype(jnp.uint8)
        self._variable_grids = moving.astype(jnp.uint8)


def _ours(levels: LevelSet, n_envs: int, n_steps: int, observed: bool) -> Rollout:
    device_levels = Levels.from_level_set(levels)
    environment = Environment(levels.shape, STEP_LIMIT)
    step = jax.vmap(
        lambda state, action, key: environment.step_autoreset(
            device_levels, state, action, key=key
        )
    )
    observe = jax.vmap(environment.observe)

    def reset(keys: jax.Array):
        index = jnp.arange(n_envs, dtype=jnp.int32) % len(levels)
        start = jax.vmap(lambda i, key: environment.reset(device_levels, i, key=key))
        state = start(index, keys)
        return state, observe(state) if observed else None

    def advance(carry, key):
        state, _ = carry
        action_key, reset_key = jax.random.split(key)
        action = jax.random.randint(action_key, (n_envs,), 0, len(ACTIONS))
        keys = jax.random.split(reset_key, n_envs)
        state, transition, _ = step(state, action, keys)
        observation = observe(state) if observed else None
        return (state, observation), transition.reward.sum()

    return _rollout(reset, advance, n_envs, n_steps)


def _jumanji(levels: LevelSet, n_envs: int, n_steps: int, observed: bool) -> Rollout:
    environment = AutoResetWrapper(
        JumanjiSokoban(generator=_SameLevels(levels), time_limit=STEP_LIMIT)
    )

    def reset(keys: jax.Array):
        state, timestep = jax.vmap(environment.reset)(keys)
        return state, timestep.observation if observed else None

    def advance(carry, key):
        state, _ = carry
        action = jax.random.randint(key, (n_envs,), 0, len(ACTIONS))
        state, timestep = jax.vmap(environment.step)(state, action)
        observation = timestep.observation if observed else None
        return (state, observation), timestep.reward.sum()

    return _rollout(reset, advance, n_envs, n_steps)


def _rollout(reset: Callable, advance: Callable, n_envs: int, n_steps: int) -> Rollout:
    """A jitted rollout from a key to the rewards and what they depend on."""

    def rollout(key: jax.Array):
        reset_key, step_key = jax.random.split(key)
        start = reset(jax.random.split(reset_key, n_envs))
        return jax.lax.scan(advance, start, jax.random.split(step_key, n_steps))

    return jax.jit(rollout)


def measure(n_envs: int = 1024, n_steps: int = 300, n_rounds: int = 7) -> dict:
    """Median steps per second and their ratios.

    Returns:
        ``steps_per_second`` by contender; ``ratio`` of ours to jumanji's for
        transitions alone, and ``ratio_observed`` where each also makes its own
        observation at every step (ours seven float planes, theirs two byte planes).
    """
    levels = generate_levels(N_LEVELS, interior=(8, 8), n_boxes=4, seed=0)
    contenders = {
        "allocsearch": _ours(levels, n_envs, n_steps, observed=False),
        "jumanji": _jumanji(levels, n_envs, n_steps, observed=False),
        "allocsearch, observed": _ours(levels, n_envs, n_steps, observed=True),
        "jumanji, observed": _jumanji(levels, n_envs, n_steps, observed=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(n_rounds + 1):
        key = jax.random.key(index)
        for name, rollout in contenders.items():
            start = time.perf_counter()
            jax.block_until_ready(rollout(key))
            if index:  # the first round compiles
                seconds[name].append(time.perf_counter() - start)
    n_total = n_envs * n_steps
    rates = {name: n_total / statistics.median(t) for name, t in seconds.items()}
    return {
        "n_envs": n_envs,
        "n_steps": n_steps,
        "steps_per_second": rates,
        "ratio": rates["allocsearch"] / rates["jumanji"],
        "ratio_observed": rates["allocsearch, observed"] / rates["jumanji, observed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-envs", type=int, default=1024)
    parser.add_argument("--n-steps", type=int, default=300)
    parser.add_argument("--n-rounds", type=int, default=7)
    arguments = parser.parse_args()
    figures = measure(arguments.n_envs, arguments.n_steps, arguments.n_rounds)
    print(f"{figures['n_envs']} environments, 10x10, four boxes, random policy")
    for name, rate in figures["steps_per_second"].items():
        print(f"  {name:<24}{rate / 1e3:>10,.0f} k steps/s")
    print(f"  ratio, transitions only      {figures['ratio']:>5.2f}")
    print(f"  ratio, with observations     {figures['ratio_observed']:>5.2f}")


if __name__ == "__main__":
    main()

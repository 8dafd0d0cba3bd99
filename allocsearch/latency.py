"""How long one external step of one stream takes, measured."""

import time
from statistics import median

import equinox as eqx
import jax
import jax.numpy as jnp

from allocsearch.allocation import Allocation
from allocsearch.tasks.protocol import Task, build_model


def latency_seconds(
    task: Task, allocation: Allocation, *, n_repeats: int = 30, steps: int = 10
) -> float:
    """Seconds from an observation to the head's output, compiled, at batch 1.

    The median over repeats of the mean over `steps` successive steps, each waiting for
    the one before, as in a closed loop. Depends on the machine and its load.

    Args:
        task: gives encoder, head and the observation.
        allocation: what to build.
        n_repeats: how many times to measure.
        steps: steps in a row that make one measurement.
    """
    model = eqx.filter_jit(lambda k: build_model(task, allocation, key=k))(
        jax.random.key(0)
    )
    step = eqx.filter_jit(lambda m, c, x: m.step(c, x, False))
    shape = task.observation
    observation = jnp.zeros(shape.shape, shape.dtype)
    carry, out = step(model, model.init_carry(), observation)
    jax.block_until_ready((carry, out))
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        for _ in range(steps):
            carry, out = step(model, carry, observation)
            jax.block_until_ready(out)
        seconds.append((time.perf_counter() - start) / steps)
    return median(seconds)

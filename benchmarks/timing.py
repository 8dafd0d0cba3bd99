"""How fast a call is at its best, and what the machine could do."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp


def fastest(function: Callable[[], object], rounds: int) -> float:
    """Least seconds of a call; a busy machine only ever adds to them."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(function())
        least = min(least, time.perf_counter() - start)
    return least


def matmul_peak(size: int = 2048, rounds: int = 20) -> float:
    """FLOP/s of a square product in single precision."""
    a = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    return 2 * size**3 / fastest(lambda: product(a), rounds)

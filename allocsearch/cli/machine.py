"""How fast this machine is: matrix products per second, measured."""

import time

SECONDS = 0.3
_SIZE = 1024


def matmul_flops_per_second() -> float:
    """The best rate of a float32 matrix product within a fraction of a second."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((_SIZE, _SIZE), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    best, ends = float("inf"), time.monotonic() + SECONDS
    while time.monotonic() < ends:
        started = time.perf_counter()
        product(a, a).block_until_ready()
        best = min(best, time.perf_counter() - started)
    return 2 * _SIZE**3 / best

"""Memory and speed of the transformer's forms, each as a ratio measured in one run.

Prints, for one level at window = T: the temporary memory of a recurrent gradient
against that of a scan that carries the cache; recurrent tokens per second against that
scan; and those of the non-recurrent network against stepping it, and as a fraction of
the matmul peak by the FLOPs of one forward and backward pass. Rounds of what is
compared alternate, so that a busy machine slows both. With `--torch-python` also the
same gradient in PyTorch, by that interpreter, with as many threads as this process has
cores.

    python benchmarks/transformer.py --rounds 5
"""

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from timing import fastest, matmul_peak

from allocsearch.allocation import Allocation
from allocsearch.network import ParallelExperts
from allocsearch.space import core_flops

TORCH = """
import json, sys, time, torch
from torch.nn.functional import gelu, rms_norm, scaled_dot_product_attention
levels, experts, d, length, batch, rounds, threads = json.loads(sys.argv[1])
torch.set_num_threads(threads)
heads = max(1, d // 64)
def weights(*shape):
    return (torch.randn(*shape) / shape[0] ** 0.5).requires_grad_()
shapes = [(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)]
blocks = [[weights(*s) for s in shapes] for _ in range(levels * experts)]
z, target = torch.randn(2, batch, length, d)
pairs = d // heads // 2
angle = torch.arange(length)[:, None] * 10_000.0 ** -(torch.arange(pairs) / pairs)
cos, sin = angle.cos(), angle.sin()
def rotated(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
def expert(block, x):
    qkv, out, up, down = block
    parts = (rms_norm(x, (d,)) @ qkv).split(d, dim=-1)
    q, k, v = (p.view(batch, length, heads, -1).transpose(1, 2) for p in parts)
    a = scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
    a = a.transpose(1, 2).reshape(batch, length, d) @ out
    return a + gelu(rms_norm(x + a, (d,)) @ up, approximate="tanh") @ down
def step():
    s = torch.zeros_like(z)
    for level in range(levels):
        x = rms_norm(s, (d,)) + z
        own = blocks[level * experts : (level + 1) * experts]
        s = s + sum(expert(block, x) for block in own) * experts ** -0.5
    (s * target).sum().backward()
step()
best = float("inf")
for _ in range(rounds):
    start = time.perf_counter()
    step()
    best = min(best, time.perf_counter() - start)
print(best)
"""


def in_turns(functions: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Least seconds of a call of each; rounds alternate.

    A round calls each several times: the first call after another function's may wait
    for memory that the other gave back to the system.
    """
    least = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            least[i] = min(least[i], fastest(function, 3))
    return least


def build(options: argparse.Namespace, recurrent: bool) -> ParallelExperts:
    """The network in its fast form."""
    return eqx.filter_jit(
        lambda: ParallelExperts(
            allocation(options, recurrent), (), key=jax.random.key(0)
        )
    )()


def allocation(options: argparse.Namespace, recurrent: bool) -> Allocation:
    """What is measured."""
    return Allocation(
        "transformer",
        recurrent,
        options.depth,
        options.experts,
        options.width,
        options=(("window", options.length),),
    )


def gradient(options: argparse.Namespace, recurrent: bool, stepping: bool) -> Any:
    """A compiled gradient by all parameters, and a call of it."""
    network = build(options, recurrent)
    shape = (options.batch, options.length, options.width)
    z, weights = jax.random.normal(jax.random.key(1), (2, *shape))
    reset = jnp.zeros(shape[:2], bool)

    def loss(network: ParallelExperts, z: jax.Array, weights: jax.Array) -> jax.Array:
        carry, wide = network.init_carry(), network.widened()

        def run(z: jax.Array, reset: jax.Array) -> jax.Array:
            if stepping:
                return jax.lax.scan(lambda c, x: wide.step(c, *x), carry, (z, reset))[1]
            return network.unroll_from_start(z, reset)

        return jnp.sum(weights * jax.vmap(run)(z, reset))

    function = jax.jit(jax.grad(loss)).lower(network, z, weights).compile()
    jax.block_until_ready(function(network, z, weights))
    return function, lambda: function(network, z, weights)


def torch_seconds(options: argparse.Namespace) -> float:
    """Seconds of the PyTorch step; raises where it does not run."""
    shape = [options.depth, options.experts, options.width, options.length]
    shape += [options.batch, options.rounds, options.torch_threads]
    command = [options.torch_python, "-c", TORCH, json.dumps(shape)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Transformer, both forms")
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--experts", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=256, help="T, and the window")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch-python", help="an interpreter that has PyTorch")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--torch-threads", type=int, default=cores)
    options = parser.parse_args()
    tokens = options.batch * options.length

    lean, run_lean = gradient(options, True, stepping=False)
    naive, run_naive = gradient(options, True, stepping=True)
    sizes = [f.memory_analysis().temp_size_in_bytes / 1e6 for f in (lean, naive)]
    print(f"recurrent, {allocation(options, True).label}, batch {options.batch}")
    print(f"  temporary memory {sizes[0]:.0f} MB, cache in the carry {sizes[1]:.0f} MB")
    print(f"  ratio {sizes[1] / sizes[0]:.1f}")
    seconds = in_turns([run_lean, run_naive], options.rounds)
    print(
        "  tokens/s {:,.0f}, naive scan {:,.0f}".format(*(tokens / s for s in seconds))
    )
    print(f"  ratio {seconds[1] / seconds[0]:.2f}", flush=True)

    _, run_parallel = gradient(options, False, stepping=False)
    _, run_steps = gradient(options, False, stepping=True)
    seconds = in_turns([run_parallel, run_steps], options.rounds)
    flops = 3 * core_flops(allocation(options, False), ()) * tokens
    fraction = flops / seconds[0] / matmul_peak()
    print("non-recurrent, gradient of a window")
    print("  tokens/s {:,.0f}, stepping {:,.0f}".format(*(tokens / s for s in seconds)))
    print(f"  ratio {seconds[1] / seconds[0]:.1f}, {fraction:.0%} of the matmul peak")
    if options.torch_python:
        other = torch_seconds(options)
        print(
            f"  PyTorch {tokens / other:,.0f} tokens/s, ratio {other / seconds[0]:.2f}"
        )


if __name__ == "__main__":
    main()

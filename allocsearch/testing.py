"""Conformance suites for authors of experts, aggregations and tasks.

Call one from a test of your own package:

    from allocsearch.testing import check_expert

    def test_my_expert():
        check_expert("my_expert")

Each law that is broken raises `ConformanceError`, which says which and how.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from allocsearch.allocation import Allocation, Scalar
from allocsearch.audit import count_flops, trace_core
from allocsearch.errors import AllocsearchError
from allocsearch.experts import (
    ContextExpert,
    LevelShape,
    Read,
    SequenceExpert,
    spec_of,
)
from allocsearch.network import ParallelExperts
from allocsearch.registry import load
from allocsearch.space import core_flops
from allocsearch.tasks.protocol import Task
from allocsearch.tasks.records import Scores

GRIDS = {0: (), 1: (5,), 2: (4, 3)}


class ConformanceError(AllocsearchError, AssertionError):
    """A law of a protocol that an implementation breaks."""


def check_expert(
    name: str,
    options: dict[str, Scalar] | None = None,
    *,
    widths: Sequence[int] = (4, 6),
    n_steps: int = 10_000,
) -> None:
    """Hold an expert against the laws of its protocol.

    Args:
        name: an installed expert.
        options: the options to build it with.
        widths: widths to try; at least one.
        n_steps: how long the carry is watched.

    Raises:
        ConformanceError: says which law is broken.
    """
    options = options or {}
    spec = spec_of(_allocation(name, options, width=widths[0]))
    _check_json(name, spec)
    for n_axes in spec.grid_ndims:
        grid = GRIDS[n_axes]
        for width in widths:
            for recurrent, form in (
                (True, "source"),
                (False, "source"),
                (False, "trimmed"),
            ):
                if form == "trimmed" and options.get("ticks", 1) != 1:
                    continue  # refused: nothing is zero at every tick
                own = {**options, "nonrecurrent_form": form}
                allocation = _allocation(name, own, width, recurrent=recurrent)
                _check_level(allocation, grid)
                _check_work(allocation, grid)
        recurrent = _allocation(name, options, widths[0])
        network = _network(recurrent, grid)
        _check_fast_form(network)
        _check_gradients(network)
        _check_compiled_once(network)
        _check_bounded(network, n_steps)


def check_aggregation(name: str, *, n_experts: int = 4, width: int = 6) -> None:
    """Hold an aggregation against the laws of its protocol.

    Args:
        name: an installed aggregation.
        n_experts: how many experts E to merge.
        width: channels.

    Raises:
        ConformanceError: says which law is broken.
    """
    module = load("aggregation", name)(n_experts, width, key=jax.random.key(0))
    again = load("aggregation", name)(n_experts, width, key=jax.random.key(0))
    _require(_equal(module, again), f"{name}: the same key gives another module")
    for grid in GRIDS.values():
        u = jax.random.normal(jax.random.key(1), (n_experts, *grid, width))
        everyone = np.arange(n_experts)[None]
        full = module(u, everyone)
        _require(
            full.shape == (1, *grid, width) and full.dtype == u.dtype,
            f"{name}: {u.shape} merged into {full.shape} {full.dtype}",
        )
        ring = (np.arange(n_experts)[:, None] - everyone) % n_experts
        merged = module(u, ring)
        _require(
            _close(merged, jnp.broadcast_to(full, merged.shape)),
            f"{name}: a ring that reaches everyone differs from full communication",
        )
        alone = module(u, np.arange(n_experts)[:, None])
        _require(_close(alone, u), f"{name}: one member is not passed on unchanged")
    u = jax.random.normal(jax.random.key(1), (n_experts, width))
    everyone = np.arange(n_experts)[None]
    flops = count_flops(lambda m, u: m(u, everyone), module, u).contractions
    _require(flops == 0, f"{name}: {flops} FLOPs of contractions, must be element-wise")


def check_task(task: Task, allocation: Allocation, training: Any) -> None:
    """Hold a task against the laws of its protocol.

    Args:
        task: built with a config small enough for a test.
        allocation: a network that it can train.
        training: a `TrainingConfig` whose horizon is four chunks or more.

    Raises:
        ConformanceError: says which law is broken.
    """
    start = task.init(allocation, training, (0, 1))
    whole, trained = task.train(start, 4)
    half, _ = task.train(start, 2)
    pieces, _ = task.train(half, 2)
    _require(_equal(whole, pieces), "training in pieces differs from the whole")
    first = task.evaluate(whole)
    _require(first == task.evaluate(whole), "evaluating twice gives two results")
    _check_items(task.evaluate_each(whole), first)
    for metrics in trained:
        scores = task.training_scores(metrics)
        _require(
            all(math.isfinite(v) for v in scores.values()),
            f"training scores are not finite: {scores}",
        )
    further, _ = task.train(whole, 1)
    evaluated, _ = task.train(pieces, 1)
    _require(_equal(further, evaluated), "evaluation changed the training")
    names = [objective.name for objective in task.objectives]
    for split in ("valid", "test"):
        baseline = task.baseline(split)  # empty where there is none
        for metrics in [
            *task.evaluate(whole, split),
            *([baseline] if baseline else []),
        ]:
            missing = set(names) - set(metrics)
            _require(not missing, f"{split} metrics lack {sorted(missing)}")
            _require(
                all(math.isfinite(v) for v in metrics.values()),
                f"{split} metrics are not finite: {metrics}",
            )
    _require(
        json.loads(json.dumps(task.manifest())) == task.manifest(),
        "the manifest does not survive JSON",
    )
    _require(task.steps_per_chunk > 0, "steps_per_chunk must be positive")


def _check_items(scores: Sequence[Scores], metrics: Sequence[dict[str, float]]) -> None:
    _require(
        [score.metrics for score in scores] == list(metrics),
        "evaluate_each has other metrics than evaluate",
    )
    for score in scores:
        lengths = {name: len(column) for name, column in score.items.items()}
        _require("seed" not in lengths, "a column of items is called seed")
        _require(
            len(set(lengths.values())) <= 1,
            f"columns of items differ in length: {lengths}",
        )
        for metric, column in score.means.items():
            mean = np.mean(score.items[column], dtype=np.float64)
            _require(
                math.isclose(mean, score.metrics[metric], rel_tol=1e-4, abs_tol=1e-5),
                f"{metric} is {score.metrics[metric]}, but items have {column} {mean}",
            )


def _allocation(
    name: str,
    options: dict[str, Scalar],
    width: int,
    *,
    recurrent: bool = True,
    depth: int = 2,
    n_experts: int = 3,
) -> Allocation:
    pairs = tuple(options.items())
    return Allocation(name, recurrent, depth, n_experts, width, options=pairs)


def _check_json(name: str, spec: Any) -> None:
    options = {f.name: getattr(spec, f.name) for f in fields(spec)}
    again = type(spec).from_options(name, json.loads(json.dumps(options)))
    _require(again == spec, f"{name}: the specification does not survive JSON")


def _check_work(allocation: Allocation, grid: tuple[int, ...]) -> None:
    traced = trace_core(allocation, grid).contractions
    formula = core_flops(allocation, grid)
    _require(
        traced == formula,
        f"{allocation.label} ({allocation.arm}): `flops` says {formula}, the traced "
        f"program {traced}",
    )


def _check_level(allocation: Allocation, grid: tuple[int, ...]) -> None:
    """Shapes, dtypes and structure, from the traced shapes alone."""
    level = LevelShape(allocation.width, grid, has_memory=not allocation.trimmed)
    read = _read(jax.random.key(1), grid, allocation.width)

    def one_step() -> tuple[Any, Any, Any]:
        expert: Any = spec_of(allocation).build(level, key=jax.random.key(0))
        if isinstance(expert, SequenceExpert):
            position = jnp.zeros(1, jnp.int32)
            pending, rows = expert.offer(jax.tree.map(lambda x: x[None], read))
            rows = expert.place(rows, position)
            attended = expert.attend(pending, rows, position, jnp.ones((1, 1), bool))
            u = expert.propose(pending, attended)
            return (), u[0], ()
        memory = expert.init_memory()
        if isinstance(expert, ContextExpert):
            context = expert.init_context()
            context = expert.write(context, expert.propose(read, memory))
            return memory, *expert(read, memory, context)
        return memory, *expert(read, memory)

    memory, u, after = eqx.filter_eval_shape(one_step)
    label = f"{allocation.label} ({allocation.arm})"
    _require(
        u.shape == read.input.shape and u.dtype == read.input.dtype,
        f"{label}: proposes {u.dtype}{u.shape}, must be like the input "
        f"{read.input.dtype}{read.input.shape}",
    )
    _require(
        _structure(memory) == _structure(after),
        f"{label}: the memory changes structure, shape or dtype in a step",
    )


def _check_fast_form(network: ParallelExperts) -> None:
    """The fused and fast forms give what the plain ones give; keys decide alone."""
    z, reset = _stream(network, 6)
    plain = _network(network.allocation, network.grid, canonical=True)
    _require(
        _equal(plain, network),
        f"{_label(network)}: the same key gives other parameters in another form",
    )
    _require(
        _close(_unroll(plain, z, reset), _unroll(network, z, reset)),
        f"{_label(network)}: the fused or fast form gives other outputs",
    )


def _check_gradients(network: ParallelExperts) -> None:
    z, reset = _stream(network, 2)
    target = jax.random.normal(jax.random.key(9), z.shape)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(network: ParallelExperts) -> jax.Array:
        return jnp.sum(target * network.unroll(network.init_carry(), z, reset)[1])

    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient(network)):
        place = f"{_label(network)}: the gradient of {jax.tree_util.keystr(path)}"
        values = np.asarray(leaf)
        _require(bool(np.isfinite(values).all()), f"{place} is not finite")
        _require(bool((values != 0).any()), f"{place} is zero over two steps")


def _check_compiled_once(network: ParallelExperts) -> None:
    traces = 0

    @eqx.filter_jit
    def step(network: ParallelExperts, carry: PyTree, z: PyTree) -> PyTree:
        nonlocal traces
        traces += 1
        return network.step(carry, z, False)

    z, _ = _stream(network, 1)
    carry, _ = step(network, network.init_carry(), z[0])
    step(network, carry, z[0])
    _require(traces == 1, f"{_label(network)}: the second call traces again")


def _check_bounded(network: ParallelExperts, n_steps: int) -> None:
    largest = float(carry_rms(network, n_steps).max())
    _require(
        math.isfinite(largest) and largest < 100.0,
        f"{_label(network)}: the carry reaches an rms of {largest:.3g} within "
        f"{n_steps} steps at initialisation",
    )


def carry_rms(network: ParallelExperts, n_steps: int) -> jax.Array:
    """The rms of the carried state at every step of a random stream, (n_steps,)."""

    def step(carry: PyTree, key: PyTree) -> PyTree:
        shape = (*network.grid, network.allocation.width)
        carry, _ = network.step(carry, jax.random.normal(key, shape), False)
        leaves = jax.tree.leaves((carry.state, carry.memories))
        rms = [jnp.sqrt(jnp.mean(jnp.square(leaf))) for leaf in leaves]
        return carry, jnp.stack(rms).max()

    keys = jax.random.split(jax.random.key(3), n_steps)
    run = eqx.filter_jit(lambda n: jax.lax.scan(step, n.init_carry(), keys)[1])
    return run(network)


def _network(
    allocation: Allocation, grid: tuple[int, ...], *, canonical: bool = False
) -> ParallelExperts:
    build: Callable[[], ParallelExperts] = eqx.filter_jit(
        lambda: ParallelExperts(
            allocation, grid, key=jax.random.key(0), canonical=canonical
        )
    )
    return build()


@eqx.filter_jit
def _unroll(network: ParallelExperts, z: PyTree, reset: PyTree) -> PyTree:
    return network.unroll(network.init_carry(), z, reset)[1]


def _label(network: ParallelExperts) -> str:
    return network.allocation.label


def _stream(network: ParallelExperts, n_steps: int) -> tuple[jax.Array, jax.Array]:
    shape = (n_steps, *network.grid, network.allocation.width)
    reset = jnp.arange(n_steps) % 4 == 0
    return jax.random.normal(jax.random.key(1), shape), reset


def _read(key: Any, grid: tuple[int, ...], width: int) -> Read:
    a, b = jax.random.split(key)
    shape = (*grid, width)
    return Read(jax.random.normal(a, shape), jax.random.normal(b, shape))


def _structure(tree: PyTree) -> Any:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _equal(a: PyTree, b: PyTree) -> bool:
    pairs = zip(_values(a), _values(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def _values(tree: PyTree) -> list[np.ndarray]:
    def value(x: Any) -> np.ndarray:
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if is_key else x)

    return [value(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def _close(a: PyTree, b: PyTree) -> bool:
    pairs = zip(_values(a), _values(b), strict=True)
    return all(np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in pairs)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConformanceError(message)

"""Work counted by walking the traced program of one external step.

Counting the program itself means that a stranger's expert is counted right without
declaring anything. XLA's own cost analysis is not used: it counts a loop's body once.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jaxtyping import PyTree

from allocsearch.allocation import Allocation
from allocsearch.errors import AuditError
from allocsearch.model import Model
from allocsearch.network import ParallelExperts
from allocsearch.work import Audit, Work

# One operation per element of the result.
_ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp cos
    cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma
    igamma_grad_a igammac integer_pow is_finite le le_to lgamma log log1p log2
    logistic lt lt_to max min mul ne neg nextafter not one_minus_square or polygamma
    population_count clz pow regularized_incomplete_beta rem round rsqrt
    select_and_scatter_add select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square sub tan tanh xor mul_add
    random_bits rng_bit_generator rng_uniform threefry2x32 random_gamma nextafter
    bessel_i0e bessel_i1e zeta""".split()
)
# One operation per element that is read.
_REDUCTIONS = frozenset(
    """reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor
    argmax argmin cumsum cumprod cummax cummin cumlogsumexp sort top_k reduce_window
    reduce_window_sum reduce_window_max reduce_window_min reduce_precision
    scatter-add scatter_add scatter-mul scatter_mul scatter-max scatter_max
    scatter-min scatter_min""".split()
)
# Movement of values, not arithmetic.
_FREE = frozenset(
    """bitcast_convert_type broadcast broadcast_in_dim concatenate convert_element_type
    conj copy copy_p device_put dynamic_slice dynamic_update_slice empty empty2
    expand_dims gather iota name optimization_barrier pad real imag complex reshape
    rev scatter slice split squeeze stop_gradient transpose select_and_gather_add
    random_seed random_wrap random_unwrap random_fold_in random_split
    sharding_constraint create_token mesh_cast pvary""".split()
)


@dataclass(frozen=True)
class FlopCount:
    """What a traced program costs.

    Attributes:
        contractions: 2 per multiply-add of matrix products and convolutions; a
            convolution counts every tap, those on padding included.
        elementwise: one per element of arithmetic and reductions.
    """

    contractions: int = 0
    elementwise: int = 0

    def __add__(self, other: "FlopCount") -> "FlopCount":
        return FlopCount(
            self.contractions + other.contractions, self.elementwise + other.elementwise
        )

    def times(self, n: int) -> "FlopCount":
        """The cost of n repetitions."""
        return FlopCount(self.contractions * n, self.elementwise * n)


def count_flops(function: Callable[..., Any], *args: PyTree) -> FlopCount:
    """The cost of calling a function on arguments of these shapes.

    Args:
        function: anything that JAX can trace.
        *args: arrays or `jax.ShapeDtypeStruct`s; nothing is computed. So may the
            arrays of a module be that is given as `function`.

    Returns:
        Exact counts; the body of a `scan` times its length, the dearest branch of a
        `cond`.

    Raises:
        AuditError: a loop whose length is not fixed, or a primitive whose cost is
            not known.
    """
    call = (function, args)  # a module is a function with arrays of its own
    dynamic, static = eqx.partition(
        call, lambda x: eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)
    )

    def traced(dynamic: PyTree) -> PyTree:
        function, args = eqx.combine(dynamic, static)
        return eqx.filter(function(*args), eqx.is_array)

    jaxpr = jax.make_jaxpr(traced)(dynamic)
    return _count_jaxpr(jaxpr.jaxpr)


def _count_jaxpr(jaxpr: Jaxpr) -> FlopCount:
    return sum((_count_equation(eqn) for eqn in jaxpr.eqns), FlopCount())


def _count_equation(eqn: JaxprEqn) -> FlopCount:
    name = eqn.primitive.name
    if name == "dot_general":
        return FlopCount(contractions=_dot_flops(eqn))
    if name == "conv_general_dilated":
        return FlopCount(contractions=_conv_flops(eqn))
    if name == "scan":
        return _count_jaxpr(eqn.params["jaxpr"].jaxpr).times(eqn.params["length"])
    if name == "while":
        raise AuditError(
            "the traced step has a loop whose length is not fixed, so its work has no "
            "bound: use lax.scan, or lax.fori_loop between constants"
        )
    if name == "cond":
        counts = [_count_jaxpr(b.jaxpr) for b in eqn.params["branches"]]
        return max(counts, key=lambda c: (c.contractions, c.elementwise))
    inner = list(_inner_jaxprs(eqn))
    if inner:
        return sum((_count_jaxpr(j) for j in inner), FlopCount())
    return _count_leaf(eqn, name)


def _count_leaf(eqn: JaxprEqn, name: str) -> FlopCount:
    if name in _ELEMENTWISE:
        return FlopCount(elementwise=sum(_size(v) for v in eqn.outvars))
    if name in _REDUCTIONS:
        return FlopCount(elementwise=_size(eqn.invars[0]))
    if name in _FREE:
        return FlopCount()
    raise AuditError(
        f"the traced step uses the primitive {name!r}, whose work is not known: write "
        "it with matrix products, convolutions and element-wise operations"
    )


def _inner_jaxprs(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    # custom_vjp and custom_jvp carry their rules beside the program; only the program
    # (jaxpr, call_jaxpr or fun_jaxpr) runs in a forward step.
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        value = eqn.params.get(key)
        if isinstance(value, ClosedJaxpr):
            yield value.jaxpr
            return
        if isinstance(value, Jaxpr):
            yield value
            return


def _size(variable: Any) -> int:
    return math.prod(_shape(variable))


def _shape(variable: Any) -> tuple[int, ...]:
    return getattr(variable.aval, "shape", ())


def _dot_flops(eqn: JaxprEqn) -> int:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    lhs = _shape(eqn.invars[0])
    return 2 * _size(eqn.outvars[0]) * math.prod(lhs[axis] for axis in contracted)


def _conv_flops(eqn: JaxprEqn) -> int:
    kernel = _shape(eqn.invars[1])
    spec = eqn.params["dimension_numbers"].rhs_spec
    taps = math.prod(kernel[axis] for axis in spec[2:])
    return 2 * _size(eqn.outvars[0]) * taps * kernel[spec[1]]


def audit_model(model: Model, observation: jax.ShapeDtypeStruct) -> Audit:
    """Count everything about a model by tracing it.

    Args:
        model: built with `canonical=True`; shapes are enough
            (`equinox.filter_eval_shape`).
        observation: shape and dtype of one observation of one stream.

    Returns:
        The record that every trial stores.
    """
    core = model.core
    carry = eqx.filter_eval_shape(core.init_carry)
    z = eqx.filter_eval_shape(model.encoder, observation)
    features = jax.ShapeDtypeStruct(z.shape, z.dtype)
    parts = {
        "core": count_flops(_core_step, core, carry, z),
        "encoder": count_flops(model.encoder, observation),
        "head": count_flops(model.readout, features),
    }
    core_arrays = (core.first, core.levels)
    return Audit(
        work=Work(**{name: part.contractions for name, part in parts.items()}),
        live_core=_live_core(core, z),
        training=count_flops(_gradient, model, carry, observation).contractions,
        elementwise=sum(part.elementwise for part in parts.values()),
        parameters=_n_elements(model),
        core_parameters=_n_elements(core_arrays),
        state_bytes=_n_bytes((carry.state, carry.memories)),
        context_bytes=_n_bytes(carry.context),
    )


def trace_core(allocation: Allocation, grid: tuple[int, ...]) -> FlopCount:
    """The traced cost of one step of an allocation's experts, nothing computed."""
    core = eqx.filter_eval_shape(
        lambda: ParallelExperts(allocation, grid, key=jax.random.key(0), canonical=True)
    )
    z = jax.ShapeDtypeStruct((*grid, allocation.width), jnp.float32)
    return count_flops(_core_step, core, eqx.filter_eval_shape(core.init_carry), z)


def _core_step(core: ParallelExperts, carry: PyTree, z: PyTree) -> PyTree:
    return core.step(carry, z, False)


def _live_core(core: ParallelExperts, z: jax.ShapeDtypeStruct) -> int:
    allocation, grid = core.allocation, z.shape[:-1]
    if allocation.recurrent:
        return trace_core(allocation, grid).contractions
    # Only the first tick of a step starts from zero.
    options = {**dict(allocation.options), "ticks": 1}
    once = replace(allocation, options=tuple(options.items()))
    trimmed = {**options, "nonrecurrent_form": "trimmed"}
    first = replace(allocation, options=tuple(trimmed.items()))
    live = trace_core(first, grid).contractions
    if allocation.ticks > 1:
        live += (allocation.ticks - 1) * trace_core(once, grid).contractions
    return live


def _gradient(model: Model, carry: PyTree, observation: PyTree) -> PyTree:
    def scalar(model_and_carry: tuple[Model, PyTree]) -> Any:
        model, carry = model_and_carry
        outputs = model.step(carry, observation, False)
        leaves = jax.tree.leaves(eqx.filter(outputs, eqx.is_inexact_array))
        return sum(jnp.sum(leaf) for leaf in leaves)

    return eqx.filter_value_and_grad(scalar)((model, carry))


def _n_elements(tree: PyTree) -> int:
    return sum(math.prod(x.shape) for x in _arrays(tree))


def _n_bytes(tree: PyTree) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in _arrays(tree))


def _arrays(tree: PyTree) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if hasattr(x, "shape")]

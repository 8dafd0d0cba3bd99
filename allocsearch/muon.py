"""Muon on the matrices of the experts; everything else is left to AdamW.

Muon moves a matrix by its momentum made orthogonal (Jordan et al., "Muon", 2024). What
a matrix is must be said: experts are stacked on axes of experts and levels, which are
independent, and Equinox's own layers keep their outputs on the first axis, where this
package's experts keep them on the last.
"""

import math
from typing import Any

import equinox as eqx
import jax
import optax
from jaxtyping import PyTree
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from allocsearch.level import Level
from allocsearch.model import Model

_OUTPUT_FIRST = (eqx.nn.Linear, eqx.nn.Conv)


def matrices(model: Model) -> PyTree:
    """Which axes of which parameters Muon takes for a matrix.

    Args:
        model: a network, or the shapes of one.

    Returns:
        A pytree like the parameters of `model`: dimension numbers for the matrices of
        the experts, None for all else: encoder, head, gains, biases and gates.
    """
    tree = jax.tree.map(lambda _: None, eqx.filter(model, eqx.is_array))
    if model.core.first is not None:
        own = _of_level(model.core.first, 1)
        tree = eqx.tree_at(lambda m: m.core.first.experts, tree, own)
    if model.core.levels is not None:
        own = _of_level(model.core.levels, 2)
        tree = eqx.tree_at(lambda m: m.core.levels.experts, tree, own)
    return tree


def is_matrix(model: Model) -> PyTree:
    """For every parameter whether it is Muon's, as a pytree like the parameters."""
    arrays = eqx.filter(model, eqx.is_array)
    return jax.tree.map(lambda _, dims: dims is not None, arrays, matrices(model))


def gains(model: Model) -> PyTree:
    """√(outputs / inputs) of every matrix, 1 for all else.

    An orthogonal step times this changes outputs by as much, relative to the inputs,
    whatever the shape; see Yang et al., "A Spectral Condition for Feature Learning"
    (2023).
    """

    def gain(x: Any, dims: Any) -> float:
        if dims is None:
            return 1.0
        fan_in = math.prod(x.shape[axis] for axis in dims.reduction_axis)
        return (x.shape[dims.output_axis] / fan_in) ** 0.5

    return jax.tree.map(gain, eqx.filter(model, eqx.is_array), matrices(model))


def by_part(
    model: Model, momentum: float, others: optax.GradientTransformation
) -> optax.GradientTransformation:
    """Orthogonal steps for the matrices of a network, other steps for the rest.

    Args:
        model: whose parameters and gradients are given.
        momentum: decay of Muon's moment.
        others: makes the other steps.
    """
    mine, dims = is_matrix(model), matrices(model)
    muon = scale_by_muon(beta=momentum, weight_dimension_numbers=dims)

    def init(params: PyTree) -> tuple[Any, Any]:
        own, rest = eqx.partition(params, mine)
        return muon.init(own), others.init(rest)

    def update(
        updates: PyTree, state: Any, params: Any = None
    ) -> tuple[PyTree, tuple[Any, Any]]:
        del params
        own, rest = eqx.partition(updates, mine)
        own, muon_state = muon.update(own, state[0])
        rest, other_state = others.update(rest, state[1])
        return eqx.combine(own, rest), (muon_state, other_state)

    return optax.GradientTransformation(init, update)


def _of_level(level: Level, n_stacked: int) -> PyTree:
    def numbers(x: Any, output_first: bool) -> MuonDimensionNumbers | None:
        if not eqx.is_array(x) and not isinstance(x, jax.ShapeDtypeStruct):
            return None
        axes = tuple(range(n_stacked, x.ndim))
        if len(axes) < 2:
            return None
        if output_first:
            return MuonDimensionNumbers(axes[1:], axes[0])
        return MuonDimensionNumbers(axes[:-1], axes[-1])

    def of_layer(node: Any) -> Any:
        first = isinstance(node, _OUTPUT_FIRST)
        return jax.tree.map(lambda x: numbers(x, first and x is node.weight), node)

    experts = eqx.filter(level.experts, eqx.is_array)
    return jax.tree.map(
        of_layer, experts, is_leaf=lambda x: isinstance(x, _OUTPUT_FIRST)
    )

"""An expert defined in a script, searched against a built-in one, from Python.

    python examples/own_expert.py [--horizon N]

Needs the task plug-in: pip install ./plugins/allocsearch-statetrack
"""

import argparse
import tempfile
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

import allocsearch
from allocsearch import registry
from allocsearch.experts import Expert, ExpertSpec, LevelShape, Read
from allocsearch.experts.layers import concatenate, init_weight, project


@dataclass(frozen=True)
class Sine(ExpertSpec):
    """u = sin(W·[Norm(s), z]): one product and a wave."""

    grid_ndims: ClassVar = (0,)

    def flops(self, level: LevelShape) -> int:
        return 2 * level.read_width * level.width

    def build(self, level: LevelShape, *, key: jax.Array) -> "SineBlock":
        shape = (level.read_width, level.width)
        return SineBlock(init_weight(key, shape, level.read_width))


class SineBlock(Expert):
    """The module of `Sine`."""

    weight: jax.Array

    def init_memory(self):
        return ()

    def __call__(self, read: Read, memory):
        return jnp.sin(project(concatenate(read), self.weight)), memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=None, help="tokens per trial")
    horizon = parser.parse_args().horizon
    registry.register("expert", "sine", Sine)
    with tempfile.TemporaryDirectory() as directory:
        study = allocsearch.run(
            {
                "name": "sine-or-mlp",
                "task": "statetrack",
                "budgets": "micro",
                "experts": ["sine", "mlp"],
                "arms": "recurrent",
                "space": {"depths": [1], "n_experts": [1, 2], "radii": "full"},
                "search": {"n_trials": 4},
                "training": {"horizon": horizon} if horizon else {},
                "output": {"directory": directory},
            }
        )
        columns = ["expert", "depth", "n_experts", "width", "core_flops", "score"]
        print(study.results()[columns].to_string(index=False))


if __name__ == "__main__":
    main()

"""Training values of Sokoban that have a name."""

from types import MappingProxyType

from allocsearch.tasks.records import Recipe

# Taufeeque et al., "Planning in a recurrent neural network that plays Sokoban" (2024).
# Epsilon and the gradient's limit are a summed loss's constants over 640 steps: they
# belong to the mean that this loss takes, and to each other.
_FAR = Recipe(
    task={
        "levels": {"interior": [8, 8], "n_boxes": 4},
        "environment": {
            "keep_border": True,
            "observation": "tiny_rgb",
            "step_limit": [30, 120],
            "evaluation_step_limit": 120,
        },
        "network": {
            "encoder_kernel": 4,
            "encoder_layers": 2,
            "head": "flatten",
            "head_hidden": 256,
        },
        "loss": {
            "kind": "vtrace",
            "discount": 0.97,
            "trace_decay": 0.5,
            "entropy": 0.01,
            "value": 0.25,
            "reward_scale": 1.0,
            "logit_penalty": 1e-3 / 640,
            "head_penalty": 1e-5 / 640,
            "normalise": False,
        },
        "n_envs": 256,
        "unroll": 20,
        "n_minibatches": 8,
        "n_epochs": 1,
    },
    training={
        "learning_rate": 4e-4,
        "scale_learning_rate": False,
        "warmup": 0,
        "cooldown": 1.0,
        "final_rate": 0.01,
        "max_grad_norm": 2.5e-4,
        "b2": 0.99,
        "eps": 1e-4 / 640,
    },
    warning=(
        "recipe far reproduces DRC(3, 3): its learning rate, its clipping and its head "
        "are not matched across sizes, so differences between allocations may be "
        "differences of tuning"
    ),
)

RECIPES = MappingProxyType({"far": _FAR})

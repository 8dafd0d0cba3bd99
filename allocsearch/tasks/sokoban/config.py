"""The fields of the Sokoban task."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from allocsearch.parsing import Count, Section

Fraction = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


def _as_pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Pair = Annotated[tuple[Count, Count], BeforeValidator(_as_pair)]


def _as_limit(value: Any) -> Any:
    """A number of steps or a pair of them; checked here, for one message about both."""
    limit = _as_pair(value)
    ends = limit if isinstance(limit, tuple) else (limit, limit)
    if (
        len(ends) != 2
        or not all(type(end) in (int, float) and end % 1 == 0 for end in ends)
        or not 1 <= ends[0] <= ends[1]
    ):
        raise ValueError(
            "give a number of steps, at least 1, or [low, high] with 1 <= low <= high"
        )
    return limit


Limit = Annotated[int | tuple[int, int], BeforeValidator(_as_limit)]


class LevelsConfig(Section):
    """Generated levels, and how many levels each split has."""

    interior: Pair = (8, 8)
    """Height and width of generated boards within their border of walls."""
    n_boxes: Count = 4
    """Boxes of generated levels."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Decides the generated levels, whatever the seed of the study."""
    min_pushes: Count = 2
    """Fewest pushes that generated held-out levels need."""
    train_min_pushes: Count = 1
    """The same of training levels: easy ones teach a policy that knows nothing."""
    n_train: Count | None = None
    """Training levels; if unset, 10 000 generated ones, or all that `data` holds."""
    n_valid: Count = 200
    """Held-out levels that the objective is measured on."""
    n_test: Count = 1000
    """Held-out levels for finalists."""


class EnvironmentConfig(Section):
    """What the agent sees, and how long an episode is."""

    keep_border: bool = True
    """Show the border of walls; without it, beyond the board counts as wall."""
    step_limit: Limit = (30, 120)
    """Steps to truncation in training; of [low, high] each episode draws its own."""
    evaluation_step_limit: Count = 120
    """Steps to truncation in evaluation."""
    n_actions: Literal[4, 5, 9] = 4
    """4 moves, 5 with "no operation" first, or gym-sokoban's 9, where 4 never push."""
    observation: Literal["planes", "tiny_rgb"] = "planes"
    """Seven one-hot planes, or gym-sokoban's colours, one pixel a square."""
    step_reward: float = -0.1
    """Reward of every step; below zero it is a penalty."""
    on_goal_reward: float = 1.0
    """Reward of pushing a box onto a goal."""
    off_goal_reward: float = -1.0
    """Reward of pushing a box off a goal."""
    solved_reward: float = 10.0
    """Reward of the step that solves the level, on top of the others."""


class NetworkConfig(Section):
    """Encoder and head around the searched core."""

    encoder_kernel: Annotated[int, Field(ge=1)] = 3
    """Taps per side of the encoder's convolutions."""
    encoder_layers: Count = 1
    """Convolutions of the encoder, without a non-linearity between them."""
    head: Literal["pool", "flatten"] = "pool"
    """`pool` reads weighted means over the board, `flatten` every square."""
    head_hidden: Annotated[int, Field(ge=0)] = 0
    """Hidden units of the head; none if 0."""


class LossConfig(Section):
    """The actor–critic loss."""

    kind: Literal["vtrace", "ppo"] = "vtrace"
    """`vtrace` corrects for stale actions; `ppo` clips the change of the policy."""
    discount: Annotated[float, Field(ge=0, lt=1)] = 0.97
    """γ, per step."""
    trace_decay: Fraction = 0.95
    """λ of the advantage estimate."""
    entropy: NonNegative = 0.01
    """Weight of the entropy bonus."""
    value: NonNegative = 0.5
    """Weight of the value loss."""
    reward_scale: Positive = 0.1
    """Rewards are multiplied by this in the loss; metrics are not."""
    clip: Positive = 0.2
    """How far `ppo` lets a probability ratio move from one."""
    logit_penalty: NonNegative = 0.0
    """Weight of the mean over steps of the sum of squared logits."""
    head_penalty: NonNegative = 0.0
    """Weight of the sum of squares of the head's matrices."""
    normalise: bool = True
    """Divide advantages by their root mean square over the minibatch."""


class EvaluationConfig(Section):
    """How a trained network plays held-out levels."""

    policy: Literal["greedy", "sampled"] = "greedy"
    """The likeliest action, or one drawn with the policy's probabilities."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Decides what `sampled` draws."""
    thinking_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of the network on the first board before its first action."""
    state: Literal["carried", "reset"] = "carried"
    """`reset` gives the network a fresh carry at every step."""

    @model_validator(mode="after")
    def _thoughts_are_kept(self) -> "EvaluationConfig":
        if self.thinking_steps and self.state == "reset":
            raise ValueError(
                "thinking_steps only move the carry, which `state: reset` drops: set "
                "thinking_steps to 0 or state to carried"
            )
        return self


class SokobanConfig(Section):
    """The Sokoban task."""

    data: str | None = None
    """Directory of Boxoban, XSB or SOK levels with train, valid and test; or a file or
    directory without them, to evaluate on; generated if unset."""
    levels: LevelsConfig = LevelsConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    network: NetworkConfig = NetworkConfig()
    loss: LossConfig = LossConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    n_envs: Count = 128
    """Environments stepped together."""
    unroll: Count = 20
    """Steps of every environment between updates."""
    n_minibatches: Count = 1
    """Updates of an epoch, each on its share of the environments."""
    n_epochs: Count = 1
    """Passes over each unroll."""
    unrolls_per_chunk: Count = 1
    """Unrolls in one compiled chunk of training."""

    @model_validator(mode="after")
    def _minibatches_divide(self) -> "SokobanConfig":
        if self.n_envs % self.n_minibatches:
            raise ValueError(
                f"n_envs = {self.n_envs} must be a multiple of n_minibatches = "
                f"{self.n_minibatches}"
            )
        return self

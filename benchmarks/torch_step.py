"""The update of a recurrent conv_lstm network in PyTorch, to compare speed with.

Started by ``sokoban_step.py --torch-python``, in an environment that has PyTorch; needs
nothing else of this repository. Reads parameters and experience from an .npz file, then
makes one update (forward, V-trace loss, backward, clipping, Adam) for every line on
stdin and answers each with a line of JSON: seconds, loss and norm of the gradient.

It is eager PyTorch as one would write it for speed on a CPU: the experts of a level are
one wide convolution, which oneDNN computes on channels-last boards.
"""

import json
import sys
import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

EPSILON = 1e-6
CHANNELS_LAST = torch.channels_last


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    """Over channels, of boards (n, channels, height, width)."""
    mean_square = x.square().mean(dim=1, keepdim=True)
    return x * torch.rsqrt(mean_square + EPSILON) * scale[:, None, None]


class Network(torch.nn.Module):
    """Encoder, L levels of E experts that share a read state, and a pooling head."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        super().__init__()

        def parameter(array: np.ndarray) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.tensor(array))

        weight = arrays["gates"]  # (L, E, k, k, inputs, gates·d)
        depth, self.n_experts, k, _, n_in, n_out = weight.shape
        self.width = n_out // 4
        apart = weight.reshape(depth, self.n_experts, k, k, n_in, 4, self.width)
        wide = np.moveaxis(apart, (5, 1, 6, 4, 2, 3), (1, 2, 3, 4, 5, 6))
        self.gates = torch.nn.ParameterList(
            parameter(w.reshape(4 * self.n_experts * self.width, n_in, k, k))
            for w in wide
        )
        for weight in self.gates:
            weight.data = weight.data.contiguous(memory_format=CHANNELS_LAST)
        bias = np.moveaxis(arrays["gate_bias"], 2, 1).reshape(depth, -1)
        self.gate_bias = torch.nn.ParameterList(map(parameter, bias))
        self.read_scale = torch.nn.ParameterList(map(parameter, arrays["read_scale"]))
        self.carry_scale = parameter(arrays["carry_scale"])
        self.head_scale = parameter(arrays["head_scale"])
        encoder = np.ascontiguousarray(arrays["encoder"].transpose(3, 2, 0, 1))
        self.encoder = parameter(encoder)
        self.encoder_bias = parameter(arrays["encoder_bias"])
        self.queries = parameter(arrays["queries"])
        self.out = parameter(arrays["out"])
        self.out_bias = parameter(arrays["out_bias"])

    def forward(
        self, state: Tensor, cells: list[Tensor], planes: Tensor, begins: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (t, b, actions) and values (t, b) of an unroll.

        Args:
            state: (b, d, h, w) at the start.
            cells: of each level, (b, e·d, h, w).
            planes: (t, b, planes, h, w), wall being the first.
            begins: (t, b), whether the carry is reset.
        """
        n_steps, n_envs = begins.shape
        wall = torch.zeros(planes.shape[2])
        wall[0] = 1.0
        flat = (planes - wall[:, None, None]).flatten(0, 1)
        flat = flat.contiguous(memory_format=CHANNELS_LAST)
        everywhere = self.encoder[:, 0].sum(dim=(1, 2)) + self.encoder_bias
        z = functional.conv2d(flat, self.encoder, everywhere, padding="same")
        z = z.unflatten(0, (n_steps, n_envs))
        features = []
        for t in range(n_steps):
            keep = (~begins[t]).float()[:, None, None, None]
            state, cells = state * keep, [cell * keep for cell in cells]
            state = rms_norm(state, self.carry_scale)
            for level, cell in enumerate(cells):
                read = torch.cat([rms_norm(state, self.read_scale[level]), z[t]], dim=1)
                u, cells[level] = self.cell(level, read, cell)
                apart = u.unflatten(1, (self.n_experts, self.width))
                state = state + apart.sum(dim=1) * self.n_experts**-0.5
            features.append(rms_norm(state, self.head_scale))
        return self.head(torch.stack(features).flatten(0, 1), n_steps)

    def cell(self, level: int, read: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Proposals and cells of all experts of a level."""
        gates = functional.conv2d(
            read, self.gates[level], self.gate_bias[level], padding="same"
        )
        i, g, o, f = gates.chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell

    def head(self, features: Tensor, n_steps: int) -> tuple[Tensor, Tensor]:
        """Policy and value of boards (t·b, d, h, w)."""
        squares = features.flatten(2).transpose(1, 2)  # (n, squares, d)
        weights = (squares @ self.queries).softmax(dim=1)
        pooled = weights.transpose(1, 2) @ squares
        read = torch.cat([pooled.flatten(1), squares.amax(dim=1)], dim=1)
        out = (read @ self.out + self.out_bias).unflatten(0, (n_steps, -1))
        return out[..., :-1], out[..., -1]


@torch.no_grad()
def vtrace(values: Tensor, ratios: Tensor, data: dict, loss: dict) -> Tensor:
    """Corrections of the values (t + 1, b), with clipping at one; see Espeholt 2018."""
    discounts = loss["discount"] * (~data["terminated"]).float()
    weights = ratios.clamp(max=1.0) * data["counts"]
    rewards = loss["reward_scale"] * data["rewards"]
    errors = rewards + discounts * values[1:] - values[:-1]
    later, corrections = torch.zeros_like(values[0]), []
    for t in reversed(range(len(errors))):
        later = weights[t] * (errors[t] + discounts[t] * loss["trace_decay"] * later)
        corrections.append(later)
    return torch.stack(corrections[::-1])


def loss_of(network: Network, data: dict, loss: dict) -> Tensor:
    """The actor–critic loss, a mean over the steps that count."""
    logits, values = network(
        data["state"], list(data["cells"]), data["observations"], data["begins"]
    )
    log_policy = logits.log_softmax(dim=-1)
    log_probs = log_policy.gather(-1, data["actions"][..., None])[..., 0]
    ratios = (log_probs - data["log_probs"]).exp()
    known = torch.cat([values.detach(), data["values"][-1:]])
    corrections = vtrace(known, ratios, data, loss)
    counts = data["counts"].float()

    def mean(x: Tensor) -> Tensor:
        return (x * counts).sum() / counts.sum().clamp(min=1)

    advantages = corrections
    if loss["normalise"]:
        advantages = advantages / (mean(advantages.square()) + 1e-6).sqrt()
    entropy = mean(-(log_policy.exp() * log_policy).sum(dim=-1))
    error = known[:-1] + corrections - values
    return (
        -mean(log_probs * advantages)
        + loss["value"] * mean(error.square()) / 2
        - loss["entropy"] * entropy
    )


def main() -> None:
    torch.set_num_threads(int(sys.argv[2]))
    with np.load(sys.argv[1]) as file:
        arrays = {name: file[name] for name in file.files}
    settings = json.loads(str(arrays.pop("settings")))
    names = [name for name in arrays if name.startswith("data.")]
    data = {name[5:]: torch.tensor(arrays.pop(name)) for name in names}
    data["actions"] = data["actions"].long()
    boards = data["observations"].permute(0, 1, 4, 2, 3)
    data["observations"] = boards.contiguous()
    for name in ("state", "cells"):
        data[name] = data[name].moveaxis(-1, -3)
    data["state"] = data["state"].contiguous(memory_format=CHANNELS_LAST)
    data["cells"] = [
        cell.contiguous(memory_format=CHANNELS_LAST) for cell in data["cells"]
    ]
    network = Network(arrays)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3, eps=1e-8)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        loss = loss_of(network, data, settings)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        adam.step()
        seconds = time.perf_counter() - start
        answer = {"seconds": seconds, "loss": loss.item(), "norm": norm.item()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

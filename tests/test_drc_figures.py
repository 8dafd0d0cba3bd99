"""DRC(3, 3) as one allocation: its size and work, against the published figures."""

import re
from pathlib import Path

import equinox as eqx
import jax
import pytest

from allocsearch.allocation import Allocation
from allocsearch.audit import audit_model
from allocsearch.config import load_config
from allocsearch.parsing import parse
from allocsearch.plan import plan
from allocsearch.tasks.protocol import build_model
from allocsearch.tasks.sokoban.config import SokobanConfig
from allocsearch.tasks.sokoban.task import Sokoban

NETWORK = {"update": "replace", "norm": "none", "skip": "encoder"}
FAR = {
    "forget_bias": 0.0,
    "output_gate": "tanh",
    "own_state": True,
    "pool": "channel",
    "boundary": "beyond",
    **NETWORK,
}
GUEZ = {"own_state": True, "pool": "linear", "boundary": "edge", **NETWORK}


def allocation(options, **changes):
    base = {"recurrent": True, "depth": 2, "n_experts": 1, "width": 4}
    return Allocation("conv_lstm", options=options, **{**base, **changes})


def sokoban(**environment):
    config = {
        "environment": environment,
        "network": {
            "encoder_kernel": 4,
            "encoder_layers": 2,
            "head": "flatten",
            "head_hidden": 256,
        },
    }
    return Sokoban(parse(SokobanConfig, config))


def audit(n_ticks, task, depth=3):
    drc = allocation({**FAR, "ticks": n_ticks}, depth=depth, width=32)
    model = eqx.filter_eval_shape(
        lambda: build_model(task, drc, key=jax.random.key(0), canonical=True)
    )
    n_parameters = sum(x.size for x in jax.tree.leaves(eqx.filter(model, is_shape)))
    return n_parameters, audit_model(model, task.observation)


def is_shape(x):
    return isinstance(x, jax.ShapeDtypeStruct)


def parameters_by_hand(n_colours, depth=3, n_actions=4):
    encoder = (
        4 * 4 * n_colours * 32  # first 4×4 convolution
        + 32  # its bias
        + 4 * 4 * 32 * 32  # second
        + 32
    )
    cell = (
        3 * 3 * (32 + 32) * 4 * 32  # gates from [state below, embedding]
        + 3 * 3 * 32 * 4 * 32  # from the pooled own state
        + 3 * 3 * 32 * 4 * 32  # from the own state
        + 4 * 32  # bias of the gates
        + 3 * 3 * 1 * 4 * 32  # boundary plane
        + 2 * 32  # weights of the pooled mean and maximum
    )
    head = (
        10 * 10 * 32 * 256  # every square to the hidden units
        + 256
        + 256 * n_actions  # policy
        + n_actions
        + 256  # value
        + 1
    )
    return encoder + depth * cell + head


@pytest.mark.parametrize(
    ("observation", "n_colours", "published"),
    [("planes", 7, None), ("tiny_rgb", 3, 1_285_125)],
)
def test_parameters_of_drc_3_3(observation, n_colours, published):
    task = sokoban(observation=observation)
    n_parameters, audited = audit(3, task)
    assert n_parameters == audited.parameters == parameters_by_hand(n_colours)
    assert published in (None, n_parameters)
    assert audited.core_parameters == 3 * 148_800
    # Three levels of cell and hidden state, and the top state, 10×10×32 of 4 bytes.
    assert audited.state_bytes == (3 * 2 + 1) * 10 * 10 * 32 * 4


def test_published_figures():
    assert parameters_by_hand(3) == 1_285_125
    assert parameters_by_hand(3, depth=1) == 987_525
    assert parameters_by_hand(3, n_actions=9) == 1_285_125 + 5 * 257
    per_cell = 9 * 100 * (4 * 32 + 1) * 4 * 32  # multiply-adds of one tick
    totals = {}
    for n_ticks in (1, 3):
        _, audited = audit(n_ticks, sokoban())
        assert audited.work.core == audited.live_core == 2 * 3 * n_ticks * per_cell
        totals[n_ticks] = audited.work.total
    assert round(totals[3] / 1e9, 2) == 0.27
    # Seven planes instead of three colours cost 4 more channels of 4×4 taps.
    assert round((totals[1] - 2 * 100 * 16 * 4 * 32) / 1e9, 3) == 0.094


def test_live_work_of_ticks_starts_from_zero_once():
    """Without recurrence the first tick has no state to read, the second has."""
    drc = allocation({**GUEZ, "ticks": 3}, recurrent=False, depth=2, width=4)
    task = sokoban()
    model = eqx.filter_eval_shape(
        lambda: build_model(task, drc, key=jax.random.key(0), canonical=True)
    )
    gate = 9 * 100 * 4  # multiply-adds per channel that is read
    first = 3 * gate * (4 + 1) + 3 * gate * (8 + 1)
    later = 2 * (4 * gate * (16 + 1) + 8 * 4)
    audited = audit_model(model, task.observation)
    assert audited.work.core == 2 * 3 * later
    assert audited.live_core == 2 * (first + 2 * later)


@pytest.mark.parametrize(("page_block", "depth", "n_ticks"), [(0, 3, 3), (1, 1, 1)])
def test_the_page_shows_these_networks(page_block, depth, n_ticks, tmp_path):
    page = Path(__file__).resolve().parents[1] / "docs" / "drc.md"
    block = re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    (tmp_path / "study.yaml").write_text(block[page_block])
    (cell,) = plan(load_config(tmp_path / "study.yaml"))
    drc = allocation({**FAR, "ticks": n_ticks}, depth=depth, width=32)
    assert cell.allocations == (drc,)
    assert cell.setting.task.positions == (10, 10)

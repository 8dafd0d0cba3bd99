from pathlib import Path

import pandas as pd
import pytest

from allocsearch.allocation import Allocation
from allocsearch.errors import DataError
from allocsearch.tasks.tabular.table import read_table

PLAIN = "depth,n_experts,width,score\n1,1,8,0.5\n2,1,6,0.75\n"


@pytest.fixture
def write(tmp_path: Path):
    def to_file(text: str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return to_file


def test_absent_columns_have_defaults(write):
    table = read_table(write(PLAIN))
    shallow = Allocation("table", True, 1, 1, 8)
    assert list(table.costs) == [shallow, Allocation("table", True, 2, 1, 6)]
    assert set(table.costs.values()) == {1}
    assert not table.has_costs
    (curve,) = table.curves[shallow]
    assert curve.at(1) == {"score": 0.5}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_three_formats_hold_the_same(tmp_path: Path, suffix: str):
    frame = pd.DataFrame(
        {
            "expert": ["mlp", "mlp"],
            "recurrent": [True, False],
            "depth": [1, 2],
            "n_experts": [4, 4],
            "width": [8, 6],
            "radius": ["full", "1"],
            "aggregation": ["mean", "sqrt_sum"],
            "flops": [100, 90],
            "loss": [1.5, 1.25],
        }
    )
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else (
        frame.to_parquet(path) if suffix == "parquet" else frame.to_json(path)
    )
    table = read_table(path)
    assert table.costs == {
        Allocation("mlp", True, 1, 4, 8, aggregation="mean"): 100,
        Allocation("mlp", False, 2, 4, 6, radius=1): 90,
    }


def test_curves_by_seed_and_step(write):
    table = read_table(
        write(
            "depth,n_experts,width,seed,steps,score\n"
            "1,1,8,1,20,0.4\n1,1,8,1,10,0.3\n1,1,8,0,10,0.1\n1,1,8,0,20,0.2\n"
        )
    )
    first, second = table.curves[Allocation("table", True, 1, 1, 8)]
    assert table.steps.tolist() == [10, 20]
    at = {steps: first.at(steps)["score"] for steps in (5, 10, 19, 20, 99)}
    assert at == {5: 0.1, 10: 0.1, 19: 0.1, 20: 0.2, 99: 0.2}
    assert second.at(10) == {"score": 0.3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("depth,width,score\n1,8,0\n", "no column 'n_experts'"),
        ("depth,n_experts,width,score\n", "no rows"),
        ("depth,n_experts,width,score\n1,1,8,nan\n", "row 1: score is nan"),
        (PLAIN + "4,1,4,inf\n", "row 3: score is inf, not finite"),
        (PLAIN + "4,1,4,high\n", "column 'score'.* no number"),
        (PLAIN + "0,1,4,1\n", "row 3: depth is 0"),
        (PLAIN + "1.5,1,4,1\n", "row 3: depth is 1.5: give a whole number"),
        (PLAIN + "1,1,8,0.6\n", "row 3: recurrent table L1 E1 d8 is there before"),
        (
            "depth,n_experts,width,radius,score\n1,2,8,full,1\n1,2,8,1,1\n",
            "two names for recurrent table L1 E2 d8",
        ),
        (
            "depth,n_experts,width,recurrent,score\n1,2,8,maybe,1\n",
            "row 1: recurrent is maybe: give true or false",
        ),
        (
            "depth,n_experts,width,flops,score\n1,2,8,0,1\n",
            "flops of recurrent table L1 E2 d8 is 0; give one whole number",
        ),
        (
            "depth,n_experts,width,flops,steps,score\n1,2,8,5,1,1\n1,2,8,6,2,1\n",
            "flops of .* is 5, 6",
        ),
        ("", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(write, text: str, words: str):
    with pytest.raises(DataError, match=words):
        read_table(write(text))


def test_files_that_are_no_table(write, tmp_path: Path):
    with pytest.raises(DataError, match="there is no table"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(DataError, match=r"must end in \.csv, \.parquet, \.json"):
        read_table(write("", "t.xlsx"))
    with pytest.raises(DataError, match="cannot be read"):
        read_table(write("{", "t.json"))

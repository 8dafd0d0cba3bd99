"""Probes of trained networks, compared on the held-out items that all of them solve."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocsearch import checkpoint
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import MISSING, arm_label, format_number, plain
from allocsearch.analysis.recall import RecallCurve, recall_curve
from allocsearch.candidate import candidate_from, load_networks
from allocsearch.cli.curve_files import Curves, check_curve_file, write_curves
from allocsearch.cli.exits import NothingToDo
from allocsearch.cli.flags import Flags
from allocsearch.cli.printing import note, show, show_json, stderr
from allocsearch.cli.scoring import SPLITS, task_fields
from allocsearch.cli.viewing import find_checkpoint, labels
from allocsearch.errors import ConfigError, unknown_name
from allocsearch.tasks.probes import ProbeCounts, Probed, ProbeRequest
from allocsearch.tasks.resolve import build_task

READINGS = ("network", "observation")


@dataclass(frozen=True)
class Network:
    """One network, and what probes told of it.

    Attributes:
        label: tells it from the others.
        about: what it is, JSON-ready.
        probed: what was told, on all items.
    """

    label: str
    about: dict[str, Any]
    probed: Probed


def probe(
    names: Sequence[str],
    directory: Path,
    request: ProbeRequest,
    flags: Flags,
    settings: Sequence[str],
    outs: Sequence[Path],
    as_json: bool,
) -> None:
    """Probe checkpoints and print what the probes found on what all of them solve.

    Args:
        names: checkpoints, as `find_checkpoint` takes them.
        directory: where studies are.
        request: what to probe.
        flags: task and data, over those that a checkpoint was trained on.
        settings: ``task.field=value``, likewise.
        outs: files to write the curves to.
        as_json: whether stdout is to be JSON.

    Raises:
        ConfigError: checkpoints are of different tasks or data, the task fits no
            probes, or the precision is out of reach.
        NothingToDo: no item is solved by all.
    """
    if request.split not in SPLITS:
        raise unknown_name("split", request.split, SPLITS)
    for out in outs:
        check_curve_file(out)
    found = _probe_all(names, directory, request, flags, settings)
    curves = _curves(found, request)
    for out in outs:
        write_curves(out, curves)
        note(f"{out} written")
    if as_json:
        show_json(curves.report)
    else:
        show(_table(found, curves, request))


def _probe_all(
    names: Sequence[str],
    directory: Path,
    request: ProbeRequest,
    flags: Flags,
    settings: Sequence[str],
) -> list[Network]:
    paths = [find_checkpoint(name, directory) for name in names]
    called = labels(names)
    manifests = [checkpoint.read_manifest(path)["metadata"] for path in paths]
    candidates = [candidate_from(metadata["candidate"]) for metadata in manifests]
    fields = [task_fields(c.task, flags, settings) for c in candidates]
    for label, own in zip(called, fields, strict=True):
        if own["name"] != fields[0]["name"]:
            raise ConfigError(
                f"{called[0]} is of task {fields[0]['name']!r} and {label} of "
                f"{own['name']!r}: probe networks of one task together"
            )
    found: list[Network] = []
    for i, path in enumerate(paths):
        task, _ = build_task(fields[i].pop("name"), fields[i])
        with stderr().status(f"probing {called[i]}"):
            probed = task.probe(
                load_networks(path, task, most=1), request, label=called[i]
            )
        allocation = candidates[i].allocation
        about = {
            "label": called[i],
            "checkpoint": str(path),
            "arm": allocation.arm,
            "allocation": allocation.to_dict(),
            "steps_trained": manifests[i]["steps"],
            "seed": candidates[i].seeds[0],
        }
        found.append(Network(called[i], about, probed))
        _check_comparable(found[0], found[-1])
        _check_calibrated(found[-1], request)
    return found


def _check_comparable(first: Network, other: Network) -> None:
    if other.probed.items != first.probed.items:
        raise ConfigError(
            f"{first.label} and {other.label} were trained on different data, so their "
            "held-out items are not the same: give both the same with --data or --set"
        )


def _check_calibrated(network: Network, request: ProbeRequest) -> None:
    counts = network.probed.network
    if counts.threshold is not None:
        return
    raise ConfigError(
        f"no threshold gives the probe of {network.label} a precision of "
        f"{request.precision:g}; the best is {counts.calibrated:.3f}: ask for less "
        "with --precision"
    )


def _curves(found: Sequence[Network], request: ProbeRequest) -> Curves:
    """Curves of all networks and their observations, on the items that all solve."""
    solved = np.stack([network.probed.solved for network in found])
    common: np.ndarray = np.all(solved, axis=0)
    n_common, n_items = int(common.sum()), len(common)
    if n_common == 0:
        each = ", ".join(
            f"{network.label} {int(n)}"
            for network, n in zip(found, solved.sum(axis=1), strict=True)
        )
        raise NothingToDo(
            f"none of the {n_items} {request.split} items is solved by all networks "
            f"(solved: {each}): train them for longer, or leave the worst out"
        )
    pairs = [tuple(_curve(n, reading, common) for reading in READINGS) for n in found]
    what = f"next direction of the {request.target}"
    names = {"state": "final state", "raw": "final state before its norm"}
    where = names.get(request.read, f"memory of level {request.read}")
    kernel = f"{request.kernel}×{request.kernel}"
    report = {
        "request": asdict(request),
        "n_items": n_items,
        "n_common": n_common,
        "classes": list(found[0].probed.classes),
        "networks": [_report(n, own) for n, own in zip(found, pairs, strict=True)],
    }
    title = f"Recall of the {what}, at {100 * request.precision:g} % precision"
    notes = f"{kernel} probes of the {where}, {n_common} {request.split} items. "
    curves = [curve for own in pairs for curve in own]
    return Curves(curves, title, notes + "Bands: 95 % bootstrap over items.", report)


def _curve(network: Network, reading: str, common: np.ndarray) -> RecallCurve:
    counts: ProbeCounts = getattr(network.probed, reading)
    names = ("targets", "emitted", "right", "confusion")
    chosen: Mapping[str, np.ndarray] = {n: getattr(counts, n)[common] for n in names}
    return recall_curve(network.label, reading, chosen, network.probed.lengths[common])


def _report(network: Network, curves: Sequence[RecallCurve]) -> dict[str, Any]:
    probes = {}
    for curve in curves:
        counts: ProbeCounts = getattr(network.probed, curve.reading)
        probes[curve.reading] = {
            "threshold": counts.threshold,
            "calibrated_precision": counts.calibrated,
            "recall": curve.recall_overall,
            "precision": curve.precision_overall,
            "macro_f1": curve.macro_f1,
            "steps": curve.rows(),
        }
    return {
        **network.about,
        "n_solved": int(network.probed.solved.sum()),
        **network.probed.details,
        "probes": probes,
    }


def _table(
    found: Sequence[Network], curves: Curves, request: ProbeRequest
) -> FittedTable:
    """Two rows for each network: what its probe found, and that of its observation."""
    report = curves.report
    rows = [
        (network, reading, network["probes"][reading])
        for network in report["networks"]
        for reading in READINGS
    ]
    columns = [
        Column("network", [plain(n["label"]) for n, _, _ in rows], "left"),
        Column("arm", [arm_label(n["arm"]) for n, _, _ in rows], "left", 4),
        Column("reads", [reading for _, reading, _ in rows], "left"),
        Column(
            "solved",
            [f"{n['n_solved']}/{report['n_items']}" for n, _, _ in rows],
            priority=3,
        ),
        Column(
            "threshold", [format_number(p["threshold"]) for _, _, p in rows], priority=2
        ),
        Column("precision", [_decimals(p["precision"]) for _, _, p in rows]),
        Column("recall", [_decimals(p["recall"]) for _, _, p in rows]),
    ]
    last = max(len(p["steps"]) for _, _, p in rows) - 1
    for t in sorted({0, min(4, last), min(9, last), last}):
        cells = [_at(p["steps"], t) for _, _, p in rows]
        columns.append(Column(f"step {t}", cells, priority=1))
    columns.append(Column("macro F1", [_decimals(p["macro_f1"]) for _, _, p in rows]))
    notes = [curves.note]
    notes += [
        f"No threshold makes the observation of {plain(network.label)} so precise; "
        f"the best is {format_number(network.probed.observation.calibrated)}."
        for network in found
        if network.probed.observation.threshold is None
    ]
    subtitle = (
        f"First {request.n_steps} steps on the {report['n_common']} of "
        f"{report['n_items']} {request.split} items that all solve"
    )
    breaks = list(range(1, len(rows) - 1, 2))
    return FittedTable(curves.title, columns, notes, subtitle, breaks=breaks)


def _decimals(value: float) -> str:
    return MISSING if np.isnan(value) else f"{value:.3f}"


def _at(steps: Sequence[Mapping[str, Any]], t: int) -> str:
    return _decimals(steps[t]["recall"]) if t < len(steps) else MISSING

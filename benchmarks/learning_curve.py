"""Draws what `allocsearch train --json` printed: one metric along training, by seed.

allocsearch train ... --n-seeds 3 --json > deep.json
python benchmarks/learning_curve.py curve.png deep.json --metric solved_fraction
"""

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter


def main() -> None:
    """One thick line a file, the mean; one thin line a seed; the baseline dotted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--metric", default="solved_fraction")
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    colours = mpl.color_sequences["tab10"]
    baseline = None
    for path, colour in zip(options.files, colours, strict=False):
        row = json.loads(path.read_text())
        steps = [point["steps"] for point in row["curves"][0]]
        curves = np.array([[p[options.metric] for p in c] for c in row["curves"]])
        for curve in curves:
            axes.plot(steps, curve, color=colour, alpha=0.35, linewidth=1)
        label = f"{row['label']}, {len(curves)} seeds"
        axes.plot(steps, curves.mean(axis=0), color=colour, linewidth=2, label=label)
        baseline = row["baseline"].get(options.metric, baseline)
    if baseline is not None:
        axes.axhline(baseline, color="black", linestyle=":", label="untrained baseline")
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel("steps of training, for each seed")
    axes.set_ylabel(options.metric.replace("_", " "))
    axes.set_title(options.title)
    axes.grid(alpha=0.3)
    axes.margins(y=0.25)
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(options.out, dpi=120)


if __name__ == "__main__":
    main()

"""The feasible set as rows and tables: shapes, work and share of the budget."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from allocsearch.allocation import Allocation
from allocsearch.analysis.fitted import Column, FittedTable
from allocsearch.analysis.formats import arm_label, listing, plain
from allocsearch.analysis.rows import Row
from allocsearch.cli.printing import show, show_json
from allocsearch.config import ExpertConfig, StudyConfig
from allocsearch.space import work_of
from allocsearch.tasks.resolve import Setting, resolve
from allocsearch.work import format_flops


def print_space(config: StudyConfig, as_json: bool) -> None:
    """Print the feasible sets of a config, one per budget, expert and arm."""
    settings = [resolve(config, budget) for budget in config.budgets]
    sets = [
        (setting, expert, arm, space_rows(setting, expert, arm))
        for setting in settings
        for expert in setting.experts
        for arm in config.arms
        if arm in expert.arms
    ]
    if as_json:
        show_json([row for *_, rows in sets for row in rows])
        return
    tables: list[_Table] = []
    for setting, expert, arm, rows in sets:
        fresh = _Table(setting, expert.name, _shapes(rows))
        same = next((table for table in tables if table == fresh), fresh)
        same.arms.append(arm)
        if same is fresh:
            tables.append(fresh)
    for i, table in enumerate(tables):
        show(*([""] if i else []), table.drawn())


def space_rows(setting: Setting, expert: ExpertConfig, arm: str) -> list[Row]:
    """Every feasible allocation of one expert and arm, with its work."""
    allocations = setting.allocations(expert, arm)
    return [_row(setting, allocation) for allocation in allocations]


def _row(setting: Setting, allocation: Allocation) -> Row:
    budget = setting.budget
    work = work_of(allocation, setting.task.positions, setting.overhead)
    values = allocation.to_dict()
    del values["recurrent"]
    return {
        "budget": budget.name,
        "budget_flops": budget.flops,
        "scope": budget.scope,
        "arm": allocation.arm,
        **values,
        "core_flops": work.core,
        "encoder_flops": work.encoder,
        "head_flops": work.head,
        "total_flops": work.total,
        "share": work.within(budget.scope) / budget.flops,
    }


Shape = tuple[int, int, int]
Costs = tuple[int, int, int, int, float]


@dataclass(frozen=True)
class Ways:
    """The radii and aggregations that a shape may have, and how many pairs."""

    radii: tuple[str, ...]
    aggregations: tuple[str, ...]
    count: int


def _shapes(rows: Sequence[Row]) -> dict[Shape, tuple[Costs, Ways]]:
    """Rows of one shape together: radius and aggregation cost nothing."""
    grouped: dict[Shape, list[Row]] = {}
    for row in rows:
        shape = row["depth"], row["n_experts"], row["width"]
        grouped.setdefault(shape, []).append(row)
    return {shape: (_costs(same[0]), _ways(same)) for shape, same in grouped.items()}


def _costs(row: Row) -> Costs:
    names = ("core_flops", "encoder_flops", "head_flops", "total_flops", "share")
    core, encoder, head, total, share = (row[name] for name in names)
    return core, encoder, head, total, share


def _ways(rows: Sequence[Row]) -> Ways:
    radii = dict.fromkeys(str(row["radius"]) for row in rows)
    aggregations = dict.fromkeys(row["aggregation"] for row in rows)
    return Ways(tuple(radii), tuple(aggregations), len(rows))


@dataclass(frozen=True)
class _Table:
    """The shapes of one expert, for the arms that share them all."""

    setting: Setting
    expert: str
    shapes: dict[Shape, tuple[Costs, Ways]]
    arms: list[str] = field(default_factory=list, compare=False)

    def drawn(self) -> FittedTable:
        """What is shown of it."""
        costs = [cost for cost, _ in self.shapes.values()]
        ways = [way for _, way in self.shapes.values()]
        depths = [shape[0] for shape in self.shapes]
        breaks = [i for i in range(len(depths) - 1) if depths[i] != depths[i + 1]]
        who = listing([arm_label(arm) for arm in self.arms])
        return FittedTable(
            f"{plain(self.expert)}, {who}: {len(self.shapes)} shapes",
            _columns(list(self.shapes), costs, ways),
            _notes(self.setting, ways),
            _band(self.setting),
            breaks,
        )


def _columns(
    shapes: Sequence[Shape], costs: Sequence[Costs], ways: Sequence[Ways]
) -> list[Column]:
    return [
        *(
            Column(name, [str(shape[i]) for shape in shapes])
            for i, name in enumerate("LEd")
        ),
        Column("core", [format_flops(cost[0]) for cost in costs]),
        Column("share", [f"{cost[4]:.1%}" for cost in costs]),
        Column("encoder", [format_flops(cost[1]) for cost in costs], "right", 2),
        Column("head", [format_flops(cost[2]) for cost in costs], "right", 2),
        Column("total", [format_flops(cost[3]) for cost in costs], "right", 1),
        Column("ways", [str(way.count) for way in ways]),
    ]


def _band(setting: Setting) -> str:
    budget = setting.budget
    least = f"{format_flops(budget.least)} to" if setting.matched else "at most"
    return (
        f"budget {plain(budget.name)}: {budget.scope} work of "
        f"{least} {format_flops(budget.flops)} a step"
    )


def _notes(setting: Setting, ways: Sequence[Ways]) -> list[str | Text]:
    radii = {radius for way in ways for radius in way.radii}
    ordered = sorted(
        radii, key=lambda radius: (not radius.isdecimal(), len(radius), radius)
    )
    names = dict.fromkeys(name for way in ways for name in way.aggregations)
    granule = setting.budget.granule
    of = f" multiple of {granule}" if granule > 1 else ""
    widths = setting.space.widths
    width = {
        "largest": f"Width d is the largest{of} that fits.",
        "all": f"Width d is any{of or ' number'} in that band.",
    }
    given = f"Width d is one of {', '.join(map(str, widths))}."
    return [
        width[widths] if isinstance(widths, str) else given,
        "Ways: a shape's choices of radius and aggregation, which cost nothing.",
        f"Radius: {', '.join(ordered)}. Aggregation: {', '.join(map(plain, names))}.",
    ]

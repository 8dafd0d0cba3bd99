"""The feasible set: every allocation whose work fits a hard budget and spends it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from allocsearch.allocation import Allocation, Scalar
from allocsearch.config import SpaceConfig
from allocsearch.errors import BudgetError, ConfigError
from allocsearch.experts import LevelShape, spec_of
from allocsearch.level import check_grid
from allocsearch.work import Budget, Work, format_flops

OverheadOf = Callable[[int], Work]

DEFAULT_AXES = SpaceConfig()


def core_flops(allocation: Allocation, grid: tuple[int, ...]) -> int:
    """FLOPs of the experts in one step, by closed form.

    Args:
        allocation: what would be built.
        grid: positions of one step.

    Returns:
        Exactly what tracing the built network counts.
    """
    spec = spec_of(allocation)
    rest = LevelShape(
        allocation.width, grid, reads_state=True, has_memory=not allocation.trimmed
    )
    first = replace(rest, reads_state=not allocation.trimmed)
    per_expert = spec.flops(first) + (allocation.depth - 1) * spec.flops(rest)
    return allocation.ticks * allocation.n_experts * per_expert


def work_of(
    allocation: Allocation, grid: tuple[int, ...], overhead: OverheadOf
) -> Work:
    """Core, encoder and head work of an allocation, nothing built.

    Args:
        allocation: what would be built.
        grid: positions of one step.
        overhead: encoder and head work at a width, as a `Work` without core.
    """
    return replace(overhead(allocation.width), core=core_flops(allocation, grid))


def feasible_space(
    expert: str,
    *,
    recurrent: bool,
    budget: Budget,
    positions: tuple[int, ...] = (),
    axes: SpaceConfig = DEFAULT_AXES,
    options: Sequence[tuple[str, Scalar]] = (),
    overhead: OverheadOf = lambda _: Work(core=0),
    matched: bool = True,
) -> tuple[Allocation, ...]:
    """Every allocation that spends a budget, in canonical order.

    Args:
        expert: name of an installed expert.
        recurrent: which arm.
        budget: the limit, its tolerance, scope and width granule.
        positions: the task's grid of positions.
        axes: what to enumerate.
        options: options of the expert and of the network.
        overhead: encoder and head work at a width, for budgets of scope "total".
        matched: whether the budget must be spent; otherwise it is only an upper
            bound, as in a controlled sweep.

    Returns:
        Allocations without duplicates, each with work in the budget's band.

    Raises:
        BudgetError: nothing fits; the message names the nearest allocation.
        UnknownNameError, PluginError, ConfigError: the expert or an option is wrong.
    """
    problem = _Problem(budget, positions, overhead, axes.widths, matched)
    base = Allocation(expert, recurrent, 1, 1, budget.granule, options=tuple(options))
    check_grid(base, positions)
    feasible: dict[Allocation, None] = {}
    refused: Exception | None = None
    for shape in _shapes(base, axes):
        try:
            feasible.update(dict.fromkeys(problem.solutions(shape)))
        except ConfigError as error:
            refused = error
    if not feasible:
        raise _nothing_fits(problem, base, axes, refused)
    return tuple(feasible)


def _shapes(base: Allocation, axes: SpaceConfig) -> Iterator[Allocation]:
    seen = set()
    for depth in axes.depths:
        for n_experts in axes.n_experts:
            for radius in axes.radii:
                for aggregation in axes.aggregations:
                    shape = replace(
                        base,
                        depth=depth,
                        n_experts=n_experts,
                        radius=radius,
                        aggregation=aggregation,
                    )
                    if shape not in seen:
                        seen.add(shape)
                        yield shape


@dataclass(frozen=True)
class _Problem:
    """Widths of one expert in one arm; radius and aggregation cost nothing."""

    budget: Budget
    positions: tuple[int, ...]
    overhead: OverheadOf
    widths: str | tuple[int, ...]
    matched: bool
    solved: dict[tuple[int, int], int] = field(default_factory=dict)

    def flops(self, allocation: Allocation) -> int:
        if self.budget.scope == "core":
            return core_flops(allocation, self.positions)
        work = work_of(allocation, self.positions, self.overhead)
        return work.within(self.budget.scope)

    @property
    def least(self) -> int:
        """The smallest work that is feasible."""
        return self.budget.least if self.matched else 0

    def solutions(self, shape: Allocation) -> Iterator[Allocation]:
        for width in self._widths(shape):
            candidate = shape.with_width(width)
            if self.least <= self.flops(candidate) <= self.budget.flops:
                spec_of(candidate)  # refuses what the expert cannot realise
                yield candidate
            elif not isinstance(self.widths, tuple):
                return

    def _widths(self, shape: Allocation) -> Iterator[int]:
        """Widths to try, falling."""
        if isinstance(self.widths, tuple):
            yield from sorted(set(self.widths), reverse=True)
            return
        most = self.most_granules(shape)
        least = max(most, 1) if self.widths == "largest" else 1
        for granules in range(most, least - 1, -1):
            yield granules * self.budget.granule

    def most_granules(self, shape: Allocation) -> int:
        """The most granules of width within the budget; 0 when not even one fits."""
        key = shape.depth, shape.n_experts
        if key not in self.solved:
            self.solved[key] = self._solve(shape)
        return self.solved[key]

    def _solve(self, shape: Allocation) -> int:
        def fits(n: int) -> bool:
            width = n * self.budget.granule
            return self.flops(shape.with_width(width)) <= self.budget.flops

        high = 1
        while fits(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def _nothing_fits(
    problem: _Problem, base: Allocation, axes: SpaceConfig, refused: Exception | None
) -> Exception:
    nearest: tuple[int, Allocation] | None = None
    for shape in _shapes(base, axes):
        granules = problem.most_granules(shape)
        for n in (granules, granules + 1):
            if n == 0:
                continue
            candidate = shape.with_width(n * problem.budget.granule)
            flops = problem.flops(candidate)
            gap = abs(flops - problem.budget.flops)
            if nearest is None or gap < abs(nearest[0] - problem.budget.flops):
                nearest = (flops, candidate)
    if refused is not None and nearest is None:
        return refused
    if nearest is None:
        return BudgetError("the space is empty: give at least one depth and one E")
    flops, candidate = nearest
    budget = problem.budget
    return BudgetError(
        f"no {base.expert} allocation fits budget {budget.name!r} "
        f"({format_flops(problem.least)} to {format_flops(budget.flops)}, "
        f"{budget.scope}): the nearest is {candidate.label} at {format_flops(flops)}"
        + (f"; some were refused: {refused}" if refused else "")
    )

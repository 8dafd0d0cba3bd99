"""`allocsearch space`."""

from allocsearch.cli import options
from allocsearch.cli.flags import Flags, configure


def space(
    config: options.ConfigFile = None,
    task: options.Task = None,
    budget: options.Budgets = None,
    data: options.Data = None,
    expert: options.Experts = None,
    arm: options.Arms = None,
    set_: options.Settings = None,
    as_json: options.Json = False,
) -> None:
    """List the allocations that spend a budget: what a search chooses from.

    Examples:
        allocsearch space --task sokoban --budget large
        allocsearch space -t sokoban -b 250M --expert conv_glu --set space.depths=[3,6]
        allocsearch space --task sokoban --budget tiny --arm recurrent --json
    """
    flags = Flags(task=task, data=data, budgets=budget, experts=expert, arms=arm)
    study_config = configure(flags, set_, config)
    from allocsearch.cli.feasible import print_space

    print_space(study_config, as_json)

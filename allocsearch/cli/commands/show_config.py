"""`allocsearch show-config`."""

from allocsearch.cli import options
from allocsearch.cli.flags import Flags, configure


def show_config(
    config: options.ConfigFile = None,
    task: options.Task = None,
    budget: options.Budget = None,
    recipe: options.Recipe = None,
    data: options.Data = None,
    set_: options.Settings = None,
    as_json: options.Json = False,
) -> None:
    """Print every field, what it means and its value, as a config that `run` takes.

    Examples:
        allocsearch show-config --task sokoban --budget tiny > study.yaml
        allocsearch show-config study.yaml --set search.mode=claim
    """
    flags = Flags(
        task=task, data=data, budgets=[budget] if budget else None, recipe=recipe
    )
    study_config = configure(flags, set_, config)
    from allocsearch.cli.fields import print_fields

    print_fields(study_config, as_json)

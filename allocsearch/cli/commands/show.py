"""`allocsearch show`."""

from allocsearch.cli import options


def show(
    name: options.StudyName,
    trial: options.TrialName,
    budget: options.OneBudget = None,
    expert: options.OneExpert = None,
    arm: options.OneArm = None,
    directory: options.Directory = None,
    as_json: options.Json = False,
) -> None:
    """Show everything about one trial.

    Each budget, expert and arm numbers its trials from 0, so a number may need them.

    Examples:
        allocsearch show sokoban-tiny best --arm recurrent
        allocsearch show sokoban-tiny tiny/conv_lstm/recurrent/3
    """
    from allocsearch.analysis.detail import trial_detail
    from allocsearch.analysis.rows import detail_row
    from allocsearch.cli.naming import find_trial
    from allocsearch.cli.printing import show as show_parts
    from allocsearch.cli.printing import show_json
    from allocsearch.study import load_study

    study = load_study(name, directory or options.DEFAULT_DIRECTORY)
    found = find_trial(study, trial, parts=(budget, expert, arm))
    row = detail_row(found, study.trials())
    if as_json:
        show_json(row)
    else:
        show_parts(trial_detail(row))

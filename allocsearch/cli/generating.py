"""What a trained network makes of a prompt."""

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict

from allocsearch.candidate import describe_checkpoint, load_networks
from allocsearch.checkpoint import Place
from allocsearch.cli.flags import Flags
from allocsearch.cli.printing import note, show_json, stdout
from allocsearch.cli.scoring import task_fields
from allocsearch.tasks.records import Prompt
from allocsearch.tasks.resolve import build_task


def print_text(
    path: Place,
    request: Prompt,
    flags: Flags,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    """Print the prompt and what the first network of a checkpoint adds to it.

    Args:
        path: the checkpoint's folder or URL.
        request: the prompt, and how to go on.
        flags: whose data override those that the checkpoint was trained on.
        settings: ``task.field=value``, likewise.
        as_json: whether stdout is to be JSON.

    Raises:
        ConfigError: the checkpoint's task generates nothing.
    """
    candidate, _ = describe_checkpoint(path, note)
    fields = task_fields(candidate.task, flags, settings)
    task, config = build_task(fields.pop("name"), fields)
    made = task.generate(load_networks(path, task, most=1), request)
    if as_json:
        about = {
            "checkpoint": str(path),
            "label": candidate.allocation.label,
            "arm": candidate.allocation.arm,
            "task": config,
            "trained_seed": candidate.seeds[0],
        }
        show_json({**about, **asdict(request), "generated": made.text, **made.details})
        return
    stdout().out(_shown(request.text + made.text), highlight=False)


def _shown(text: str) -> str:
    """Text as it stands, but for what would control a terminal."""
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")
    return "".join(kept)

"""Writes docs/cli.md from the commands' own help: python docs/make_cli.py"""

from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from allocsearch.cli.app import app

PAGE = Path(__file__).with_name("cli.md")
INTRODUCTION = """# The command line

Made from the commands' own `--help` by `docs/make_cli.py`; a test keeps it current.
"""


def render() -> str:
    """The page as the installed version would have it."""
    commands = sorted(get_command(app).commands)  # type: ignore[attr-defined]
    parts = [INTRODUCTION, _section("allocsearch", [])]
    parts += [_section(f"allocsearch {name}", [name]) for name in commands]
    return "\n".join(parts)


def _section(title: str, args: list[str]) -> str:
    env = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}
    runner = CliRunner(env=env)
    result = runner.invoke(app, [*args, "--help"], prog_name="allocsearch")
    lines = [line.rstrip() for line in result.output.strip("\n").splitlines()]
    return f"## {title}\n\n```text\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")

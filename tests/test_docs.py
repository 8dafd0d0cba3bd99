"""What the documentation shows, runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from allocsearch import registry
from allocsearch.config import load_config
from allocsearch.driver import run

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/*/*.md")]
)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_own_expert_page_runs():
    try:
        scope = {"__name__": "a_page"}
        for block in blocks(ROOT / "docs" / "your-own-expert.md", "python"):
            exec(compile(block, "your-own-expert.md", "exec"), scope)
    finally:
        registry.unregister("expert", "wave")
        registry.unregister("aggregation", "largest")


def test_sokoban_page_runs(capsys):
    for block in blocks(ROOT / "docs" / "sokoban.md", "python"):
        exec(compile(block, "sokoban.md", "exec"), {"__name__": "a_page"})
    assert "#######" in capsys.readouterr().out


def test_text_page_runs(capsys):
    pytest.importorskip("tokenizers")
    scope = {"__name__": "a_page"}
    for block in blocks(ROOT / "docs" / "text.md", "python"):
        exec(compile(block, "text.md", "exec"), scope)
    assert "built-in train text" in capsys.readouterr().out


def test_the_readme_names_only_commands_that_exist():
    from allocsearch.cli.app import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands}
    for page in PAGES:
        for block in blocks(page, "sh"):
            for command in re.findall(r"allocsearch ([a-z][a-z-]*)", block):
                assert command in known, f"{page.name}: allocsearch {command}"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("examples/*.yaml")), ids=lambda p: p.stem
)
def test_example_studies_run(path, tmp_path):
    short = ["training.n_seeds=1", "training.n_evaluations=2"]
    task = yaml.safe_load(path.read_text())["task"]
    name = task if isinstance(task, str) else task["name"]
    if name == "sokoban":
        short += ["task={levels: {n_train: 50, n_valid: 10, n_test: 10}, n_envs: 8}"]
        short += ["training.horizon=500", "space.depths=[1, 2]", "search.n_trials=4"]
    else:
        short += ["training.horizon=3000", "search.n_trials=2"]
    base = {"output": {"directory": str(tmp_path)}}
    study = run(load_config(path, short, base))
    frame = study.results()
    assert set(frame["state"]) == {"complete"}
    assert set(frame["arm"]) == {"recurrent", "nonrecurrent"}
    assert len(study.finalists()) == 2


def test_example_script_runs():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "own_expert.py"), "--horizon", "3000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sine" in done.stdout
    assert "mlp" in done.stdout


def test_the_cli_page_is_current():
    code = "import sys; sys.path.insert(0, 'docs'); import make_cli as m; "
    code += "sys.exit(m.render() != m.PAGE.read_text('utf-8'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == 0, "run python docs/make_cli.py"

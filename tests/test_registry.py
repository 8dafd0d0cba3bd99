"""Entry points: listed without importing, clashes and broken ones said plainly."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from allocsearch import registry
from allocsearch.cli.app import app
from allocsearch.config import load_config
from allocsearch.errors import PluginError, UnknownNameError
from allocsearch.tasks.resolve import resolve

BUILT_IN = {
    "expert": {"conv_glu", "conv_lstm", "gru", "mlp", "transformer"},
    "aggregation": {"l2_softmax_gated", "mean", "softmax_gated", "sqrt_sum"},
    "task": {"sokoban"},
}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install distributions that are nothing but entry points."""

    def install(name, group, entry, module=""):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        if module:
            (tmp_path / f"{name}.py").write_text(module)
        registry._installed.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield install
    registry._installed.cache_clear()


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_built_ins_are_entry_points_like_any_other(kind):
    found = {p.name: p for p in registry.plugins(kind)}
    assert BUILT_IN[kind] <= set(found)
    for name in BUILT_IN[kind]:
        assert found[name].distribution == "allocsearch"
        assert found[name].version
        assert registry.load_error(found[name]) == ""


def test_a_name_of_two_distributions_names_both(installed):
    installed("first", "allocsearch.experts", "twin = first:A")
    installed("second", "allocsearch.experts", "twin = second:B")
    with pytest.raises(PluginError, match="claimed by first and second"):
        registry.load("expert", "twin")
    assert [p.distribution for p in registry.plugins("expert") if p.name == "twin"] == [
        "first",
        "second",
    ]


def test_a_broken_one_says_why_and_hurts_no_other(installed):
    installed("sad", "allocsearch.tasks", "sad = sad:Task", "raise ValueError('rain')")
    with pytest.raises(PluginError, match=r"from sad 1\.0 .* ValueError: rain"):
        registry.load("task", "sad")
    (plugin,) = [p for p in registry.plugins("task") if p.name == "sad"]
    assert "rain" in registry.load_error(plugin)
    assert registry.load("task", "sokoban")


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'conv_lstm'"):
        registry.load("expert", "conv_ltsm")


def test_register_offers_to_this_process(request):
    request.addfinalizer(lambda: registry.unregister("expert", "mine"))
    target = object()
    registry.register("expert", "mine", target)
    assert registry.load("expert", "mine") is target
    with pytest.raises(PluginError, match="already offered by this process"):
        registry.register("expert", "mine", target)
    with pytest.raises(PluginError, match="already offered by allocsearch"):
        registry.register("expert", "mlp", target)


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, allocsearch, allocsearch.config, allocsearch.registry\n"
        "import allocsearch.analysis.rows, allocsearch.search\n"
        "allocsearch.registry.names('expert')\n"
        "heavy = {'jax', 'optuna', 'matplotlib', 'pandas', 'equinox'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture
def two(installed, monkeypatch):
    """Two distributions with an expert each; importing them would be seen."""
    noisy = "raise RuntimeError('imported')"
    installed("my_first", "allocsearch.experts", "one = my_first:A", noisy)
    installed("second", "allocsearch.experts", "two = second:B", noisy)
    monkeypatch.delenv(registry.ONLY_VARIABLE, raising=False)
    registry._import.cache_clear()


def offered():
    return {"one", "two"} & set(registry.names("expert"))


@pytest.mark.usefixtures("two")
def test_plugins_of_some_distributions_alone(monkeypatch):
    assert offered() == {"one", "two"}
    monkeypatch.setenv(registry.ONLY_VARIABLE, "My.First, allocsearch")
    assert offered() == {"one"}
    assert "mlp" in registry.names("expert")
    with pytest.raises(
        PluginError, match=r"'two' is from second, which --plugins-only"
    ):
        registry.load("expert", "two")
    with pytest.raises(PluginError, match="RuntimeError: imported"):
        registry.load("expert", "one")
    monkeypatch.setenv(registry.ONLY_VARIABLE, "")
    assert offered() == set()
    assert "mlp" in registry.names("expert")


@pytest.mark.usefixtures("two")
def test_limits_hold_together_and_end(monkeypatch):
    with registry.limited_to(["second"]):
        assert offered() == {"two"}
        monkeypatch.setenv(registry.ONLY_VARIABLE, "my-first")
        assert offered() == set()
    assert offered() == {"one"}
    with registry.limited_to(None):
        assert offered() == {"one"}
    monkeypatch.setenv(registry.ONLY_VARIABLE, "my-frist")
    with pytest.raises(UnknownNameError, match="did you mean 'my_first'"):
        registry.check_limits()


@pytest.mark.usefixtures("two")
def test_a_config_and_a_flag_limit_plugins(monkeypatch):
    config = load_config(
        settings=["task=sokoban", "experts=two", "plugins_only=my_first"]
    )
    with pytest.raises(PluginError, match="leaves out"):
        resolve(config, "tiny")
    typo = load_config(settings=["task=sokoban", "plugins_only=[my_frist]"])
    with pytest.raises(UnknownNameError, match="my_first"):
        resolve(typo, "tiny")

    monkeypatch.setenv(registry.ONLY_VARIABLE, "second")  # put back afterwards
    result = CliRunner().invoke(app, ["--plugins-only", "my-first", "plugins"])
    assert result.exit_code == 0
    assert "my_first" in result.stdout
    assert "second" not in result.stdout
    result = CliRunner().invoke(app, ["--plugins-only", "my-frist", "plugins"])
    assert result.exit_code == 2

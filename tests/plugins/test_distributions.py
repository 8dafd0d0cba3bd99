"""Both packages as strangers would meet them: listed, built, installed, loaded."""

import importlib.util
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from allocsearch import registry

PLUGINS = Path(__file__).parents[2] / "plugins"
OFFERS = [
    ("task", "statetrack", "allocsearch-statetrack"),
    ("expert", "bilinear", "allocsearch-bilinear"),
]


@pytest.mark.parametrize(("kind", "name", "distribution"), OFFERS)
def test_the_registry_lists_them(kind, name, distribution):
    project = tomllib.loads((PLUGINS / distribution / "pyproject.toml").read_text())
    found = registry.find(kind, name)
    assert found.distribution == distribution == project["project"]["name"]
    assert found.version == project["project"]["version"]
    assert registry.load_error(found) == ""


@pytest.mark.parametrize("distribution", [d for _, _, d in OFFERS])
def test_the_readme_and_license_are_declared(distribution):
    project = tomllib.loads((PLUGINS / distribution / "pyproject.toml").read_text())
    assert project["project"]["license"] == "Apache-2.0"
    assert "Apache-2.0" in (PLUGINS / distribution / "README.md").read_text()


LOAD = """
from allocsearch import registry
for kind, name, distribution in {offers!r}:
    plugin = registry.find(kind, name)
    module = registry.load(kind, name).__module__.split(".")[0]
    where = __import__(module).__file__
    print(plugin.origin, "site-packages" in where and where.startswith({root!r}))
"""


def test_wheels_install_in_a_fresh_environment(tmp_path):
    pytest.importorskip("pip")
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "-w", str(wheels)]
    if importlib.util.find_spec("hatchling"):  # else pip fetches it
        build.append("--no-build-isolation")
    distributions = [distribution for _, _, distribution in OFFERS]
    subprocess.run([*build, *(str(PLUGINS / d) for d in distributions)], check=True)
    assert len(list(wheels.glob("*.whl"))) == len(OFFERS)

    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False, symlinks=os.name != "nt")
    python = fresh / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    target = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        text=True,
    ).strip()
    install = [*pip, "install", "--no-deps", "--no-index", "--target", target]
    subprocess.run([*install, *map(str, wheels.glob("*.whl"))], check=True)
    # Everything else comes from the environment that runs this test, behind ours.
    code = f"import sys; sys.path += {sys.path!r}\n" + LOAD.format(
        offers=OFFERS, root=str(fresh)
    )
    out = subprocess.check_output([python, "-c", code], text=True, cwd=tmp_path)
    assert out.splitlines() == [f"{d} 0.1.0 True" for d in distributions]

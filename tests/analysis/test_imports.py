"""Importing the analysis is cheap and needs no JAX."""

import subprocess
import sys

CODE = """
import importlib, pkgutil, sys
import allocsearch.analysis as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"allocsearch.analysis.{module.name}")
heavy = "jax optuna matplotlib pandas scipy numpy".split()
print(*[name for name in heavy if name in sys.modules])
"""


def test_importing_loads_nothing_heavy():
    run = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ""

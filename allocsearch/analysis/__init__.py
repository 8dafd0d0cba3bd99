"""What finished trials say: best, fronts, statistics, tables and figures.

Everything here reads a list of `TrialResult` and needs neither JAX nor Optuna, so a
study can be analysed on a machine that could never have trained it.
"""

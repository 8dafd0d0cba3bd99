"""Kinds of experts, one file each, and the protocol a stranger's expert follows."""

from allocsearch.experts.protocol import (
    ContextExpert,
    Expert,
    ExpertSpec,
    FusedExpert,
    LevelShape,
    Read,
    spec_of,
)

__all__ = [
    "ContextExpert",
    "Expert",
    "ExpertSpec",
    "FusedExpert",
    "LevelShape",
    "Read",
    "spec_of",
]

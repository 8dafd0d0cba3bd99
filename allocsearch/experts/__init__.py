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
from allocsearch.experts.sequence import SequenceExpert

__all__ = [
    "ContextExpert",
    "Expert",
    "ExpertSpec",
    "FusedExpert",
    "LevelShape",
    "Read",
    "SequenceExpert",
    "spec_of",
]

"""Ways to merge a level's proposals, one file each, and their protocol."""

from allocsearch.aggregations.protocol import Aggregation, AggregationFactory

__all__ = ["Aggregation", "AggregationFactory"]

"""The FineWeb task: text as streams of tokens."""

"""Columns computed once per graph from its edges: positional encodings, scores, expanders."""

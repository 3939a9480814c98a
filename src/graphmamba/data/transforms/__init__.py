"""Columns computed once for each graph, from its edges alone."""

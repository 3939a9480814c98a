"""A name or files -> graphs with all columns that a model reads."""

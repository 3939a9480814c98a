"""The commands `train`, `evaluate`, `predict`, `data` and `benchmarks`."""

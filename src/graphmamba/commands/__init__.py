"""`graphmamba train`, `evaluate`, `predict`, `data` and `benchmarks`: what they ask and print."""

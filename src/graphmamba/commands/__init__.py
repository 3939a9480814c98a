"""`graphmamba train`, `evaluate` and `predict`: what they ask, and what they print."""

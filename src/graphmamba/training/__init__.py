"""Training: an experiment in, checkpoints and results out."""

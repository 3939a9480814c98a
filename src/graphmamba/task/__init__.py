"""Node rows -> prediction, loss and score."""

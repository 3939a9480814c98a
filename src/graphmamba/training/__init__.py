"""An experiment -> checkpoint and results."""

"""Measuring the library on the machine at hand; `benchmarks/` composes these parts."""

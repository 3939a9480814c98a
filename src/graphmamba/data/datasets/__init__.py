"""The ten benchmarks: their files, read or downloaded, or the recipes that generate them."""

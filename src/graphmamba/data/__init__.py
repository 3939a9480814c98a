"""A name or files -> graphs with all columns that a model reads.

store       all graphs of a set as columns end to end (`tables`), and batches of them
cache       stores on disk: built once, locked, mapped into memory
sampler     which graphs go into which batch; `splits` says which are for training
catalog     the ten benchmarks of the paper: columns, tasks, sizes
datasets/   how each of the ten is read, downloaded or generated
custom/     a user's graphs: CSV folders, `.npz`, SMILES, PyG
transforms/ columns computed once for each graph: spectra, random walks, centrality, expanders
commands    `graphmamba data build` and `data info`, with `summary` and `plot`
"""

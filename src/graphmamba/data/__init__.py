"""Data sets and your own graphs, and the batches that a model reads.

from_pyg          PyG graphs -> `tables`; a user's list, masks and labels: `custom/pyg`
store             graphs of a data set as columns end to end (`tables`); makes batches (`gather`)
batch             what a layer reads of a batch: `Topology`
sampler           which graphs go into which batch; `splits` says which are for training, and
                  `custom/split` how a user's graphs, or the nodes of one graph, are split
static_batch      batches of a few fixed sizes (`static_size`) with a padding graph, for CUDA graphs
neighbor_sampling batches of one graph that does not fit into memory
cache             stores on disk: built once, locked, mapped into memory
catalog           the ten benchmarks of the paper: columns, tasks, sizes
datasets/         how each of the ten is read, downloaded or generated
custom/           your own graphs: CSV folders, SMILES, `.npz`, TUDatasets, GraphML, PyG
transforms/       columns computed once per graph: spectra, random walks, centrality, expanders
summary, plot     statistics and figures of a data set
"""

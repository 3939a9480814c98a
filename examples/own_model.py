"""`GraphMambaBlock` in a PyTorch Geometric model: message passing beside a scan over all nodes."""

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool

from graphmamba import GraphMambaBlock


class OwnModel(torch.nn.Module):
    def __init__(self, columns: int, channels: int, classes: int) -> None:
        super().__init__()
        self.conv = GCNConv(columns, channels)
        self.block = GraphMambaBlock(channels)
        self.classify = torch.nn.Linear(channels, classes)

    def forward(self, graphs: Batch) -> torch.Tensor:
        x = self.conv(graphs.x, graphs.edge_index).relu()
        x = x + self.block(x, graphs.edge_index, graphs.batch)
        return self.classify(global_mean_pool(x, graphs.batch))


ring = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
graphs = Batch.from_data_list([Data(x=torch.randn(5, 3), edge_index=ring) for _ in range(4)])
print(OwnModel(columns=3, channels=16, classes=2)(graphs))

"""Graph-Mamba (https://arxiv.org/abs/2402.00789), the whole paper in plain PyTorch.

This file is the algorithm; everything else is efficiency and service. It loads the shipped weights
of Peptides-func and gives the library's outputs (a test). `python examples/graph_mamba_minimal.py`
trains a small model in half a minute, on a task that needs long range. It follows the published
code and numbers; where the paper's text differs, a comment says how. Left out: several sequences
per graph ("bins"), which the paper has for its largest graphs.

Shapes:
    V, E, G  nodes, edges and graphs of a mini-batch; the nodes of a graph stand together
    L        nodes of its largest graph, the length of the longest sequence
    d        channels of node and edge embeddings
    N, K, R  Mamba's state size (16), taps of its convolution (4), rank of its step size (d / 16)
    k, p     Laplacian eigenvectors (10) and channels of the positional encoding (16)
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

ATOMS = (119, 5, 12, 12, 10, 6, 6, 2, 2)  # values of each column of an atom, as OGB counts them
BONDS = (5, 6, 2)  # values of each column of a bond


# --- Positions: what a node knows of its place in the graph ---------------------------------------


def add_laplacian(graph: Data, k: int = 10) -> Data:
    """Add the k smallest eigenpairs of L = Deg - Adj; a graph with fewer nodes has NaN beyond."""
    n, (source, target) = graph.num_nodes, graph.edge_index
    adjacency = torch.zeros(n, n, dtype=torch.float64)  # [n, n]
    adjacency[source, target] = adjacency[target, source] = 1.0
    adjacency.fill_diagonal_(0.0)
    values, vectors = torch.linalg.eigh(torch.diag(adjacency.sum(1)) - adjacency)  # [n], [n, n]
    pairs = torch.full((2, n, k), torch.nan)
    pairs[0, :, :n], pairs[1, :, :n] = vectors[:, :k], values[:k].clamp_min(0.0)
    graph.laplacian_vectors, graph.laplacian_values = pairs  # [n, k] each
    return graph


class LapPE(nn.Module):
    """One small MLP for every pair (eigenvector entry, eigenvalue), summed over the pairs."""

    def __init__(self, p: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2, 2 * p), nn.ReLU(), nn.Linear(2 * p, p), nn.ReLU())

    def forward(self, vectors: Tensor, values: Tensor) -> Tensor:
        is_missing = vectors.isnan()  # [V, k]
        if self.training:  # an eigenvector has no sign of its own
            vectors = vectors * (torch.randint(2, vectors.shape[1:]) * 2 - 1)  # [V, k]
        pairs = torch.stack([vectors, values], dim=-1).nan_to_num(0.0)  # [V, k, 2]
        encoded = self.mlp(pairs)  # [V, k, p]
        return encoded.masked_fill(is_missing[:, :, None], 0.0).sum(1)  # [V, p]


class Categories(nn.Module):
    """One learned vector for each value of each column, summed over the columns."""

    def __init__(self, sizes: tuple[int, ...], d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(sizes), d))  # the tables, one below the other
        for table in self.weight.data.split(sizes):
            nn.init.xavier_uniform_(table)
        starts = torch.tensor(sizes).cumsum(0) - torch.tensor(sizes)
        self.register_buffer("starts", starts, persistent=False)  # [columns]

    def forward(self, columns: Tensor) -> Tensor:
        return self.weight[columns + self.starts].sum(1)  # [rows, columns, d] -> [rows, d]


# --- Mamba (https://arxiv.org/abs/2312.00752): one selective scan over each sequence --------------


def selective_scan(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t,  y_t = C_t h_t + D u_t, token by token.

    The text has B_bar by zero-order hold and no `D u`; the published numbers are those of dt B.
    """
    h = u.new_zeros(u.shape[0], *A.shape)  # [G, d, N]
    y = []
    for t in range(u.shape[1]):
        A_bar = torch.exp(dt[:, t, :, None] * A)  # [G, d, N]
        B_bar = dt[:, t, :, None] * B[:, t, None, :]  # [G, d, N]
        h = A_bar * h + B_bar * u[:, t, :, None]  # [G, d, N]
        y.append((h * C[:, t, None, :]).sum(-1) + D * u[:, t])  # [G, d]
    return torch.stack(y, dim=1)  # [G, L, d]


class Mamba(nn.Module):
    """In-projection, causal convolution, selective scan, gate, out-projection."""

    def __init__(self, d: int, N: int = 16, K: int = 4) -> None:
        super().__init__()
        self.sizes = R, _, _ = math.ceil(d / 16), N, N
        self.in_proj = nn.Linear(d, 2 * d, bias=False)
        self.conv1d = nn.Conv1d(d, d, K, groups=d)  # each channel by itself
        self.x_proj = nn.Linear(d, R + 2 * N, bias=False)
        self.dt_proj = nn.Linear(R, d)  # with x_proj a map of low rank, in the text a full one
        self.A_log = nn.Parameter(torch.arange(1.0, N + 1).log().repeat(d, 1))  # [d, N]
        self.D = nn.Parameter(torch.ones(d))
        self.out_proj = nn.Linear(d, d, bias=False)
        nn.init.uniform_(self.dt_proj.weight, -(R**-0.5), R**-0.5)
        dt = torch.empty(d).uniform_(math.log(1e-3), math.log(1e-1)).exp()  # first step sizes
        self.dt_proj.bias.data = dt + torch.log(-torch.expm1(-dt))  # softplus(bias) = dt

    def forward(self, x: Tensor) -> Tensor:
        u, z = self.in_proj(x).chunk(2, dim=-1)  # [G, L, d] each
        u = F.pad(u.transpose(1, 2), (self.conv1d.kernel_size[0] - 1, 0))  # [G, d, K - 1 + L]
        u = F.silu(self.conv1d(u)).transpose(1, 2)  # [G, L, d], token t sees t - K + 1 to t
        dt, B, C = self.x_proj(u).split(self.sizes, dim=-1)  # [G, L, R], [G, L, N], [G, L, N]
        dt = F.softplus(self.dt_proj(dt))  # [G, L, d]
        y = selective_scan(u, dt, -self.A_log.exp(), B, C, self.D)  # [G, L, d]
        return self.out_proj(y * F.silu(z))  # [G, L, d]


# --- Algorithm 1: the Graph-Mamba block -----------------------------------------------------------


def order_nodes(edge_index: Tensor, batch: Tensor) -> Tensor:
    """Node of each token: graph by graph, in each by ascending degree, ties at random.

    Nodes of high degree come last and so see most of the graph. The degree is the out-degree. The
    published code adds noise from [0, 1) to it, which is the same: it decides between ties alone.
    """
    degree = torch.bincount(edge_index[0], minlength=len(batch))  # [V]
    order = torch.randperm(len(batch))  # [V]
    order = order[degree[order].argsort(stable=True)]  # [V]
    return order[batch[order].argsort(stable=True)]  # [V]


class GraphMambaBlock(nn.Module):
    """Every node exchanges with all others of its graph, in linear time."""

    def __init__(self, d: int, eval_samples: int = 5) -> None:
        super().__init__()
        self.mamba = Mamba(d)
        self.eval_samples = eval_samples

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        samples = 1 if self.training else self.eval_samples  # at evaluation the mean over orders
        return sum(self.scan_once(x, edge_index, batch) for _ in range(samples)) / samples

    def scan_once(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        order = order_nodes(edge_index, batch)  # [V]
        sizes = torch.bincount(batch)  # [G]
        place = torch.arange(len(batch)) - (sizes.cumsum(0) - sizes)[batch]  # [V], 0 to L - 1
        tokens = x.new_zeros(len(sizes), int(sizes.max()), x.shape[1])  # [G, L, d]
        # `batch` is sorted: the graph of each token, too. No scan looks at the padding behind it.
        tokens[batch, place] = x[order]
        y = self.mamba(tokens)[batch, place]  # [V, d], a row for each token (no LayerNorm before)
        return y[order.argsort()]  # [V, d], a row for each node


# --- Algorithm 2: message passing and Graph-Mamba side by side ------------------------------------


class GatedGCN(nn.Module):
    """Messages through gates that the edges learn (https://arxiv.org/abs/1711.07553).

    e_hat_ij = D x_i + E x_j + C e_ij,    x_hat_i = A x_i + sum_j s_ij B x_j / sum_j s_ij

    with s_ij = sigmoid(e_hat_ij) and sums over the edges j -> i.
    """

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (nn.Linear(d, d) for _ in range(5))
        self.node_norm, self.edge_norm = nn.BatchNorm1d(d), nn.BatchNorm1d(d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, e: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        j, i = edge_index  # [E] each
        e_hat = self.D(x)[i] + self.E(x)[j] + self.C(e)  # [E, d]
        s = e_hat.sigmoid()  # [E, d]
        messages = torch.zeros_like(x).index_add(0, i, s * self.B(x)[j])  # [V, d]
        gates = torch.zeros_like(x).index_add(0, i, s)  # [V, d]
        x_hat = self.A(x) + messages / (gates + 1e-6)  # [V, d]
        x = x + self.dropout(self.node_norm(x_hat).relu())  # [V, d]
        e = e + self.dropout(self.edge_norm(e_hat).relu())  # [E, d]
        return x, e


class GraphMambaLayer(nn.Module):
    """A GPS layer (https://arxiv.org/abs/2205.12454); the text has no norms, no `s +` below."""

    def __init__(self, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.local_model, self.global_model = GatedGCN(d, dropout), GraphMambaBlock(d)
        self.norm_local, self.norm_global, self.norm = (nn.BatchNorm1d(d) for _ in range(3))
        self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, e: Tensor, graphs: Batch) -> tuple[Tensor, Tensor]:
        x_local, e = self.local_model(x, e, graphs.edge_index)  # [V, d], [E, d]
        x_global = x + self.dropout(self.global_model(x, graphs.edge_index, graphs.batch))  # [V, d]
        s = self.norm_local(x_local) + self.norm_global(x_global)  # [V, d]
        mlp = self.fc2(self.dropout(self.fc1(s).relu()))  # [V, 2d] -> [V, d]
        return self.norm(s + self.dropout(mlp)), e  # [V, d], [E, d]


class GraphMamba(nn.Module):
    """The model of Peptides-func: 373,018 parameters."""

    def __init__(self, outputs: int = 10, d: int = 96, layers: int = 3, p: int = 16) -> None:
        super().__init__()
        self.atoms, self.positions = Categories(ATOMS, d - p), LapPE(p)
        self.bonds = Categories(BONDS, d)
        self.layers = nn.ModuleList(GraphMambaLayer(d) for _ in range(layers))
        self.head = nn.Linear(d, outputs)

    def forward(self, graphs: Batch) -> Tensor:
        positions = self.positions(graphs.laplacian_vectors, graphs.laplacian_values)  # [V, p]
        x = torch.cat([self.atoms(graphs.x), positions], dim=-1)  # [V, d]
        e = self.bonds(graphs.edge_attr)  # [E, d]
        for layer in self.layers:
            x, e = layer(x, e, graphs)  # [V, d], [E, d]
        sizes = torch.bincount(graphs.batch)[:, None]  # [G, 1]
        mean = x.new_zeros(len(sizes), x.shape[1]).index_add(0, graphs.batch, x) / sizes  # [G, d]
        return self.head(mean)  # [G, outputs]


# --- The library's weights ------------------------------------------------------------------------

RENAMED = {  # a name in files of the library -> the name here, replaced from the first to the last
    "backbone.encoder.nodes.0.parts.0.network.": "atoms.",
    "backbone.encoder.nodes.0.parts.1.set_network.": "positions.",
    "backbone.encoder.edges.0.network.": "bonds.",
    "backbone.layers.": "layers.",
    "head.mlp.0.": "head.",
    ".norm.norm.": ".norm.",
    "_local.norm.": "_local.",
    "_global.norm.": "_global.",
    ".local_model.edges.": ".local_model.C.",
}


def from_library(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give weights of the library the names of this file."""
    found = {}
    for key, tensor in weights.items():
        name = key
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if ".local_model.nodes." in name:  # A, B, D and E are one product there
            for letter, rows in zip("ABDE", tensor.chunk(4), strict=True):
                found[name.replace("nodes", letter)] = rows
        elif "noise_seed" not in name and "flips" not in name:  # counters of its random numbers
            found[name] = tensor
    return found


# --- A task that needs long range: are the two ends of a molecule of the same kind? ---------------


def make_molecule(n: int) -> Data:
    """Draw a long, thin tree of carbon atoms with nitrogen or oxygen at either end.

    Messages over two bonds do not join them: without the scan, accuracy stays at one half.
    """
    parent = (torch.arange(1, n) - torch.randint(1, 4, (n - 1,))).clamp_min(0)  # [n - 1]
    edge_index = torch.stack([parent, torch.arange(1, n)])  # [2, n - 1]
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)  # [2, E], both directions
    x = torch.tensor([5, *[0] * 8]).repeat(n, 1)  # [n, 9], carbon
    x[1, 0], x[-1, 0] = ends = torch.randint(6, 8, (2,))  # nitrogen or oxygen
    edge_attr = torch.zeros(edge_index.shape[1], 3, dtype=torch.long)  # [E, 3]
    y = (ends[0] == ends[1]).float().view(1, 1)  # [1, 1]
    return add_laplacian(Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=y))


def main(steps: int = 300) -> None:
    """Train on new molecules in each step, and score 200 others."""
    torch.manual_seed(0)
    model = GraphMamba(outputs=1, d=32, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    held_out = Batch.from_data_list([make_molecule(20 + n % 10) for n in range(200)])
    for step in range(1, steps + 1):
        graphs = Batch.from_data_list([make_molecule(20 + n % 10) for n in range(64)])
        loss = F.binary_cross_entropy_with_logits(model.train()(graphs), graphs.y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 30 == 0:  # accuracy swings until the running statistics of BatchNorm settle
            with torch.no_grad():
                is_right = (model.eval()(held_out) > 0) == (held_out.y > 0)  # [200, 1]
            print(f"step {step}: loss {loss:.3f}, accuracy {is_right.float().mean():.3f}")


if __name__ == "__main__":
    main()

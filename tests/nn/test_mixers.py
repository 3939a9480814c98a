"""Global global models against the formulas that they compute, or approximate."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from graphmamba.errors import UserError
from graphmamba.nn import Attention, BigBird, ExphormerStack, Performer
from graphmamba.nn.attention import DenseLayout
from graphmamba.nn.bigbird import BlockPattern
from graphmamba.nn.exphormer import AttentionEdges, ExphormerAttention
from graphmamba.ops.edge_attention import attention_graph
from tests.helpers.graphs import ODD_SIZES, one_graph, random_rows, random_topology, with_columns


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, is_seen: Tensor) -> Tensor:
    """Attention of [nodes, heads, width] rows, for the pairs (asker, asked) that may meet."""
    score = torch.einsum("qhc,khc->hqk", query, key) * query.shape[-1] ** -0.5
    weight = score.masked_fill(~is_seen, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khc->qhc", weight, value)


def test_pad_and_unpad_are_inverse() -> None:
    topology = random_topology()
    x, _ = random_rows(topology)
    layout = DenseLayout.of(topology)
    (dense,), (is_seen,) = layout.pad(x), layout.is_seen
    assert dense.shape == (5, 12, 8)
    # A graph without nodes has its first row seen, which is zeros.
    assert is_seen.sum(dim=1).tolist() == [max(size, 1) for size in ODD_SIZES]
    assert torch.equal(dense[~is_seen], torch.zeros(int((~is_seen).sum()), 8))
    assert torch.equal(layout.unpad([dense]), x)


def test_known_blocks_take_graphs_by_size_and_leave_the_padding_out() -> None:
    topology = replace(random_topology((5, 9, 0, 2, 40)), dense_blocks=((1, 9), (3, 6)))
    x, _ = random_rows(topology)
    layout = DenseLayout.of(topology)
    long, short = layout.pad(x)
    rows = x.split([5, 9, 2, 40])
    assert torch.equal(long[0], rows[1])
    assert torch.equal(short[0, :5], rows[0])
    assert torch.equal(short[1, :2], rows[2])
    assert not torch.cat([short[0, 5:], short[1, 2:], short[2]]).any()
    assert [each.sum(dim=1).tolist() for each in layout.is_seen] == [[9], [5, 2, 1]]
    assert torch.equal(layout.unpad([long, short])[:16], x[:16])
    assert not layout.unpad([long, short])[16:].any()


@pytest.mark.parametrize(
    "global_model", [Attention(8, 2), Performer(8, 2)], ids=["softmax", "features"]
)
def test_known_blocks_change_no_number(global_model: nn.Module) -> None:
    plain = random_topology((5, 9, 0, 2, 40))
    known = replace(plain, dense_blocks=((1, 9), (3, 6)))
    x, _ = random_rows(plain)
    results = []
    for topology in (plain, known):
        rows = x.clone().requires_grad_()
        out = global_model(rows, topology)
        (grad,) = torch.autograd.grad(out[:16].square().sum(), rows)
        assert out.isfinite().all()
        results.append((out[:16], grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "channels"),
    # 24 channels a head, then 19 and 17, which are padded.
    [(Attention, 96), (Attention, 76), (Attention, 68), (Performer, 96), (BigBird, 96)],
)
def test_attention_on_a_gpu_is_that_on_a_cpu(kind: type[nn.Module], channels: int) -> None:
    torch.manual_seed(0)
    global_model = kind(channels, 4)
    topology = random_topology((40, 0, 1, 7, 0))
    x, _ = random_rows(topology, channels)
    results = []
    for device in ("cpu", "cuda"):
        rows = x.to(device).requires_grad_()
        out = global_model.to(device)(rows, replace(topology, batch=topology.batch.to(device)))
        (grad,) = torch.autograd.grad(out.square().sum(), rows)
        results.append((out.cpu(), grad.cpu()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-3, atol=5e-4)


def test_attention_is_that_of_torch() -> None:
    topology = random_topology((5, 1, 8))
    x, _ = random_rows(topology)
    ours, theirs = Attention(8, 2), nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.in_proj_weight.data.copy_(ours.in_proj.weight.data)
    theirs.in_proj_bias.data.copy_(ours.in_proj.bias.data)
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    layout = DenseLayout.of(topology)
    (dense,) = layout.pad(x)
    expected, _ = theirs(dense, dense, dense, key_padding_mask=~layout.is_seen[0])
    assert torch.allclose(ours(x, topology), layout.unpad([expected]), atol=1e-5)


def test_performer_nears_softmax_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    # What keeps its features away from zero is also what keeps it from the limit.
    monkeypatch.setattr("graphmamba.nn.performer.EPSILON", 0.0)
    torch.manual_seed(0)
    topology = random_topology((6, 1, 9))
    x = 0.5 * random_rows(topology)[0]
    global_model = Performer(8, 2, features=5_000)
    query, key, value = global_model.in_proj(x).unflatten(-1, (3, 2, -1)).unbind(1)
    same = topology.batch[:, None] == topology.batch
    exact = global_model.out_proj(softmax_attention(query, key, value, same).flatten(1))
    # A Monte Carlo estimate: the error falls with the root of the number of features.
    assert torch.allclose(global_model(x, topology), exact, atol=0.02)


def test_padding_shifts_no_key_of_the_performer() -> None:
    torch.manual_seed(0)
    global_model = Performer(8, 2, features=1).double()
    # Keys so long that their features vanish beside those of a row of zeros.
    global_model.in_proj.weight.data *= 20
    topology = random_topology((30, *[3] * 20))
    x, _ = random_rows(topology, dtype=torch.float64)
    together = global_model(x, topology)
    for graph in range(1, 21):
        alone, nodes, _ = one_graph(topology, graph)
        assert torch.allclose(global_model(x[nodes], alone), together[nodes], atol=1e-9)


def block_mask(pattern: BlockPattern, head: int) -> Tensor:
    """Which pairs of nodes meet in a head according to a block pattern."""
    nodes = pattern.slot.shape[0]
    is_seen = torch.zeros(nodes, nodes, dtype=torch.bool)
    node_at = {int(slot): node for node, slot in enumerate(pattern.slot)}
    for node, slot in enumerate(pattern.slot.tolist()):
        own = slot // pattern.block
        rows = pattern.key_blocks[own, head, :, None] * pattern.block + torch.arange(pattern.block)
        for row, counts in zip(rows.flatten().tolist(), pattern.is_key[own, head], strict=True):
            if counts:
                # A block listed twice would weigh twice: every pair is met once.
                assert not is_seen[node, node_at[row]]
                is_seen[node, node_at[row]] = True
    return is_seen


@pytest.mark.parametrize("sizes", [(40,), ODD_SIZES, (6, 25, 7)], ids=str)
def test_big_bird_attends_as_its_pattern_says(sizes: tuple[int, ...]) -> None:
    topology = random_topology(sizes)
    x, _ = random_rows(topology)
    global_model = BigBird(8, 2)
    pattern = BlockPattern.of(topology, 3, 3, heads=2)
    same = topology.batch[:, None] == topology.batch
    sparse = torch.stack([block_mask(pattern, head) for head in range(2)])
    is_seen = torch.where(pattern.is_global[:, None], same, sparse)
    assert not (is_seen & ~same).any()
    query, key, value = global_model.in_proj(x).unflatten(-1, (3, 2, -1)).unbind(1)
    mixed = softmax_attention(query, key, value, is_seen).flatten(1)
    hidden = global_model.attention_norm(x + global_model.out_proj(mixed))
    expected = global_model.norm(hidden + global_model.second(global_model.first(hidden).relu()))
    assert torch.allclose(global_model(x, topology), expected, atol=1e-5)


def test_big_bird_sees_window_global_and_random_blocks() -> None:
    topology = random_topology((300,))
    pattern = BlockPattern.of(topology, 3, 3, heads=4)
    drawn = set()
    for head in range(4):
        seen = block_mask(pattern, head)[150]  # in block 50 of 100
        blocks = seen.view(100, 3)
        assert (blocks.all(dim=1) == blocks.any(dim=1)).all()
        listed = set(blocks.any(dim=1).nonzero().flatten().tolist())
        assert {0, 49, 50, 51, 99} <= listed
        assert len(listed) == 8
        drawn.add(frozenset(listed - {0, 49, 50, 51, 99}))
    # Every head has drawn others.
    assert len(drawn) == 4
    assert pattern.is_global.nonzero().flatten().tolist() == [0, 1, 2, 297, 298, 299]


@pytest.mark.parametrize("nodes", [1, 5, 9, 14, 20])
def test_small_graphs_attend_to_all_blocks(nodes: int) -> None:
    pattern = BlockPattern.of(random_topology((nodes,)), 3, 4, heads=2)
    assert block_mask(pattern, 1).all()


def test_exphormer_attention_is_its_formula() -> None:
    torch.manual_seed(0)
    attention = ExphormerAttention(8, 2)
    rows, real, kinds = torch.randn(6, 8), 3 * torch.randn(5, 8), torch.randn(2, 8)
    edges = torch.randint(5, (2, 9))  # node 5 has none
    kind = torch.tensor([0, 1, 1, 0])
    wires = attention_graph(edges, torch.cat([torch.arange(5), 5 + kind]), nodes=6, shared=2)
    query, key, value = (part.view(6, 2, 4) for part in attention.nodes(rows).chunk(3, dim=-1))
    features = attention.edges(torch.cat([real, kinds[kind]])).view(9, 2, 4)
    above, below = torch.zeros(6, 2, 4), torch.zeros(6, 2, 1)
    for edge, (j, i) in enumerate(edges.T.tolist()):
        score = (key[j] * query[i] / 2 * features[edge]).sum(dim=-1, keepdim=True)
        weight = score.clamp(-5, 5).exp()
        above[i] += weight * value[j]
        below[i] += weight
    expected = (above / (below + 1e-6)).flatten(1)
    found = attention(rows, AttentionEdges(wires, torch.cat([real, kinds])))
    assert torch.allclose(found, expected, atol=1e-5)


def test_exphormer_wires_real_expander_and_virtual_edges() -> None:
    topology = random_topology((3, 2))
    _, e = random_rows(topology)
    stack = ExphormerStack(8, 1, 2, virtual_nodes=2)
    edges = stack._wire(e, topology)
    real, expanders = e.shape[0], topology.columns["expander_index"].shape[1]
    index, feature = edges.wires.edge_index, edges.wires.feature
    assert torch.equal(index[:, :real], topology.edge_index)
    assert torch.equal(index[:, real : real + expanders], topology.columns["expander_index"])
    others = index[:, real + expanders :]
    # Virtual nodes 5 and 6 are the first of either graph, 7 and 8 the second.
    into_first = torch.tensor([[0, 1, 2, 3, 4], [5, 5, 5, 6, 6]])
    assert torch.equal(others[:, :5], into_first)
    assert torch.equal(others[:, 5:10], into_first.flip(0))
    assert torch.equal(others[:, 10:15], into_first + torch.tensor([[0], [2]]))
    assert feature[:real].tolist() == list(range(real))
    kinds = [0] * expanders + [1] * 5 + [3] * 5 + [2] * 5 + [4] * 5
    assert (feature[real:] - real).tolist() == kinds
    assert torch.equal(edges.features, torch.cat([e, stack.kinds]))


def test_paddings_do_not_meet_at_a_virtual_node() -> None:
    topology = replace(random_topology((3, 2)), num_real_nodes=torch.tensor(3))
    _, e = random_rows(topology)
    edges = ExphormerStack(8, 1, 2, has_expander=False, virtual_nodes=1)._wire(e, topology)
    into = edges.wires.edge_index[:, e.shape[0] : e.shape[0] + 5]
    assert torch.equal(into, torch.tensor([[0, 1, 2, 3, 4], [5, 5, 5, 3, 4]]))


def test_missing_expander_edges_are_asked_for() -> None:
    topology = with_columns(random_topology(), expander_index=None)
    x, e = random_rows(topology)
    with pytest.raises(UserError, match=r"expander_index must be given .* got None"):
        ExphormerStack(8, 1, 2)(x, e, topology)

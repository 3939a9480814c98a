"""PCQM-Contact: contacts of the published table, and wrong pairs to learn from."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.pcqm_contact import (
    draw_negatives,
    read_pcqm_contact,
    shuffled_split,
    with_negatives,
)
from graphmamba.data.datasets.sources import build_benchmark
from graphmamba.errors import UserError
from tests.helpers.raw_files import cut, spoil

chem = pytest.importorskip("rdkit.Chem")
NODE_PTR = torch.tensor([0, 30, 31, 60])
POSITIVES = torch.tensor([[0, 5, 31, 40, 7, 9], [5, 0, 40, 31, 9, 7]])


def written(smiles: str, contacts: list[tuple[int, int]]) -> str:
    """A molecule as the table has it: every atom, and on the atoms the numbers of contacts."""
    molecule = chem.AddHs(chem.MolFromSmiles(smiles))
    for atom in molecule.GetAtoms():
        carried = [str(i) for i, pair in enumerate(contacts) if atom.GetIdx() in pair]
        atom.SetProp("contact", ";".join(carried))
    # Atoms are written as they are numbered, so that the test knows them.
    order = chem.SmilesWriteParams()
    order.allHsExplicit, order.canonical = True, False
    return str(chem.MolToCXSmiles(molecule, order))


def write_table(path: Path, texts: list[str], name: str = "cxsmiles") -> None:
    lines = [f"number\t{name}", *(f"{i}\t{text}" for i, text in enumerate(texts))]
    path.write_text("\n".join(lines) + "\n")


def test_contacts_join_the_atoms_that_share_a_number(tmp_path: Path) -> None:
    near = written("CCO", [(0, 2), (1, 8), (2, 5)])
    write_table(tmp_path / "pcqm4m-contact.tsv", [near, written("C", []), written("N", [(0, 1)])])
    columns = read_pcqm_contact(tmp_path, stride=1)
    molecule = chem.MolFromSmiles(near, sanitize=False)
    heavy = [atom.GetIdx() for atom in molecule.GetAtoms() if atom.GetAtomicNum() > 1]
    assert columns.node_ptr.tolist() == [0, 9, 13]
    assert columns.edge_ptr.tolist() == [0, 16, 22]
    assert columns.nodes["x"][heavy, 0].tolist() == [5, 5, 7]
    # No hydrogen is implicit, and hybridisation is that of no class.
    assert columns.nodes["x"][:, 4].eq(0).all()
    assert columns.nodes["x"][:, 6].eq(5).all()
    pairs = columns.pairs["edge_label_index"]
    assert pairs.ptr.tolist() == [0, 6, 8]
    found = {tuple(pair) for pair in pairs.index[:, :6].T.tolist()}
    carried = [(a.GetIdx(), a.GetProp("contact").split(";")) for a in molecule.GetAtoms()
               if a.HasProp("contact")]  # fmt: skip
    expected = {(a, b) for a, mine in carried for b, theirs in carried
                if a != b and set(mine) & set(theirs) - {""}}  # fmt: skip
    assert found == expected
    assert len(found) == 6
    assert (heavy[0], heavy[2]) in found


def test_every_sixth_molecule_is_in_the_benchmark(tmp_path: Path) -> None:
    texts = [written("C" * (1 + i), [(0, 1)]) for i in range(13)]
    write_table(tmp_path / "pcqm4m-contact.tsv", texts)
    store = build_benchmark("pcqm-contact", tmp_path, tmp_path / "sets")
    assert [graph.num_nodes for graph in (store[0], store[1], store[2])] == [5, 23, 41]
    assert store.source == "built from pcqm4m-contact.tsv, every molecule of 6"
    assert store[0].edge_label_index.shape == (2, 2)


def test_the_split_has_the_published_sizes_and_seed() -> None:
    published = CATALOG["pcqm-contact"]
    sizes = (published.train, published.validation, published.test)
    split = shuffled_split(sum(sizes))
    assert tuple(torch.bincount(split).tolist()) == sizes
    order = np.random.default_rng(42).permutation(sum(sizes))
    assert split[order[: sizes[0]]].eq(0).all()
    assert split[order[-sizes[2] :]].eq(2).all()
    assert torch.bincount(shuffled_split(11)).tolist() == [9, 1, 1]


@pytest.mark.parametrize(
    ("texts", "name", "message"),
    [
        (["C("], "cxsmiles", r"line 2: cxsmiles must name a molecule, got 'C\('"),
        (["[H][H] |atomProp:0.contact.0|"], "cxsmiles", "line 2: contact 0 must join two atoms"),
        (["[H][H]"], "cxsmiles", "must hold at least one molecule with contacts, got none"),
        (["[H][H]"], "smiles", r"must be a whole table: .*cxsmiles"),
    ],
)
def test_a_wrong_table_is_reported(
    texts: list[str], name: str, message: str, tmp_path: Path
) -> None:
    write_table(tmp_path / "pcqm4m-contact.tsv", texts, name)
    with pytest.raises(UserError, match=message):
        read_pcqm_contact(tmp_path)


def test_atoms_without_their_hydrogens_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    near = "|atomProp:0.contact.0:1.contact.0|"
    texts = [f"[CH3][CH3] {near}", "[H][H]", f"C[CH3] {near}"]
    write_table(tmp_path / "pcqm4m-contact.tsv", texts)
    with pytest.raises(UserError, match=r"tsv, line 4: every atom must say how many hydrogens"):
        read_pcqm_contact(tmp_path, stride=1)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("damage", [cut, spoil])
def test_a_damaged_table_is_reported(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "pcqm4m-contact.tsv"
    write_table(path, [written("C" * (1 + i), [(0, 1)]) for i in range(20)])
    packed = path.rename(path.with_suffix(".tsv.gz"))
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    damage(packed)
    with pytest.raises(UserError, match=r"tsv\.gz must be a whole table"):
        read_pcqm_contact(tmp_path)


def pairs_of(index: torch.Tensor) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in index.T]


def test_two_wrong_pairs_for_each_true_one_in_the_same_graph() -> None:
    drawn, can_serve = draw_negatives(POSITIVES, NODE_PTR, torch.tensor(0))
    assert can_serve.all()
    graph = torch.searchsorted(NODE_PTR, drawn, right=True)
    assert torch.equal(graph[0], graph[1])
    assert drawn[0].bincount(minlength=60)[POSITIVES[0]].tolist() == [2] * 6
    assert not set(pairs_of(drawn)) & set(pairs_of(POSITIVES))
    assert len(set(pairs_of(drawn))) == drawn.shape[1]


def test_pairs_that_cannot_be_had_are_left_out() -> None:
    # of three pairs with node 0 two are true, so that one is wrong; four are asked for
    positives = torch.tensor([[0, 0], [1, 2]])
    drawn, can_serve = draw_negatives(positives, torch.tensor([0, 3]), torch.tensor(0))
    assert pairs_of(drawn[:, can_serve]) == [(0, 0)]


def test_tails_are_uniform_over_what_is_left() -> None:
    positives = torch.tensor([[0], [1]])
    drawn = [
        draw_negatives(positives, torch.tensor([0, 5]), torch.tensor(seed)) for seed in range(500)
    ]
    tails = torch.cat([pairs[1, can_serve] for pairs, can_serve in drawn])
    share = tails.bincount(minlength=5) / len(tails)
    assert share[1] == 0
    # 1,000 tails: over four standard deviations of a share of a quarter
    assert (share[[0, 2, 3, 4]] - 0.25).abs().max() < 0.06


def test_pairs_of_a_padding_graph_do_not_count_and_change_no_other() -> None:
    pairs, label = with_negatives(POSITIVES, NODE_PTR, torch.tensor(5))
    padded = torch.cat([POSITIVES, torch.tensor([[60, 61], [60, 61]])], dim=1)
    ptr = torch.cat([NODE_PTR, torch.tensor([64])])
    ours, labels = with_negatives(padded, ptr, torch.tensor(5), torch.tensor(60))
    counts = ~labels.isnan()
    assert torch.equal(ours[:, counts], pairs)
    assert torch.equal(labels[counts], label)

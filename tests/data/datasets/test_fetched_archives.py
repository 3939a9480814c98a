"""Archives that are fetched: named by their content, and unpacked nowhere but in their folder."""

import io
import tarfile
from pathlib import Path

import pytest
from torch_geometric.datasets import MalNetTiny

from graphmamba.data.datasets.download import download_lrgb, download_malnet
from graphmamba.errors import UserError
from tests.data.datasets.test_download import served, zipped

__all__ = ["served"]


@pytest.mark.usefixtures("served")
def test_what_no_checksum_is_published_for_is_named_by_its_content(tmp_path: Path) -> None:
    found = [
        download_lrgb("peptides-func", tmp_path / data_dir).source for data_dir in ("one", "other")
    ]
    assert found[0] == found[1]
    assert "compared with no checksum, since none is published; its files have the hash" in found[0]
    (tmp_path / "other" / "peptides-func" / "raw" / "more").write_text("more")
    assert download_lrgb("peptides-func", tmp_path / "other").source != found[0]


@pytest.mark.parametrize("link", [None, tarfile.LNKTYPE, tarfile.SYMTYPE], ids=str)
@pytest.mark.parametrize("name", ["../../../escaped", "/tmp/graphmamba-escaped"])
def test_archives_cannot_write_outside_of_their_folder(
    name: str, link: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "malnet-graphs-tiny.tar.gz", "w:gz") as archive:
        if link is not None:
            # a name for a place outside, through which the file is then written
            leads = tarfile.TarInfo("inside")
            leads.type, leads.linkname = link, name
            archive.addfile(leads)
        member = tarfile.TarInfo(name if link is None else "inside")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    zipped(tmp_path / "split_info_tiny.zip", "", {})
    files = {"data_url": "malnet-graphs-tiny.tar.gz", "split_url": "split_info_tiny.zip"}
    for field, file in files.items():
        monkeypatch.setattr(MalNetTiny, field, (tmp_path / file).as_uri())
    before = getattr(tarfile.TarFile, "extraction_filter", None)
    with pytest.raises(UserError):
        download_malnet(tmp_path / "root" / "raw")
    assert all("malnet-tiny" in place.parts for place in tmp_path.rglob("*escaped"))
    assert not Path("/tmp/graphmamba-escaped").exists()
    assert getattr(tarfile.TarFile, "extraction_filter", None) == before

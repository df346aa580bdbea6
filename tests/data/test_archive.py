"""Archives are unpacked whole or not at all, and never outside their folder."""

import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from deeplda.data.archive import unpack
from deeplda.errors import InputError

WANTED = frozenset({"a.bin", "b.bin"})


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def write(path: Path, *more: tarfile.TarInfo, extra: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(member("set", tarfile.DIRTYPE))
        for name in ("set/a.bin", "set/b.bin"):
            info = member(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(name[-5:].encode()))
        for info in more:
            info.size = len(extra) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(extra))
    return path


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_wanted_files_arrive_and_others_do_not(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar.gz", member("set/unwanted.bin"))
    unpack(archive, tmp_path / "set", WANTED, 100)
    assert everything(tmp_path) == {"a.tar.gz", "set", "set/a.bin", "set/b.bin"}
    assert (tmp_path / "set" / "b.bin").read_bytes() == b"b.bin"


def test_a_file_that_was_there_is_replaced_and_strangers_stay(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_text("half")
    (tmp_path / "set" / "mine.txt").write_text("mine")
    unpack(write(tmp_path / "a.tar.gz"), tmp_path / "set", WANTED, 100)
    assert (tmp_path / "set" / "a.bin").read_bytes() == b"a.bin"
    assert (tmp_path / "set" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (member("../evil"), r"the path \.\./evil"),
        (member("set/../../evil"), "the path"),
        (member("/etc/evil"), "the path /etc/evil"),
        (member("..\\evil"), "the path"),
        (member("C:/evil"), "the path"),
        (member("set/evil", tarfile.SYMTYPE, "/etc/passwd"), "a link or device"),
        (member("set/evil", tarfile.LNKTYPE, "set/a.bin"), "a link or device"),
        (member("set/evil", tarfile.CHRTYPE), "a link or device"),
        (member("set/evil", tarfile.FIFOTYPE), "a link or device"),
    ],
)
def test_dangerous_members_refuse_the_whole_archive(tmp_path: Path, bad: tarfile.TarInfo, says: str) -> None:
    archive = write(tmp_path / "a.tar.gz", bad)
    with pytest.raises(InputError, match=says):
        unpack(archive, tmp_path / "set", WANTED, 100)
    assert everything(tmp_path) == {"a.tar.gz"}


def test_too_many_bytes_missing_files_and_broken_archives(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar.gz", member("set/big"), extra=bytes(200))
    with pytest.raises(InputError, match="at most 100 bytes"):
        unpack(archive, tmp_path / "set", WANTED, 100)
    with pytest.raises(InputError, match=r"does not hold c\.bin"):
        unpack(archive, tmp_path / "set", WANTED | {"c.bin"}, 1000)
    whole = archive.read_bytes()
    for content in (whole[:-30], whole[:60], b"text", b""):
        archive.write_bytes(content)
        with pytest.raises(InputError, match="cannot be unpacked"):
            unpack(archive, tmp_path / "set", WANTED, 1000)
    assert everything(tmp_path) == {"a.tar.gz"}


def test_small_archives_that_would_fill_the_memory(tmp_path: Path, little_memory: None) -> None:  # noqa: ARG001
    """A header of a gigabyte, and more headers than anyone needs, packed into a few kilobytes."""
    header = member("long", tarfile.XHDTYPE)
    header.size = 2**30
    many = [member(f"set/{number}") for number in range(2_000)]
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header.tobuf()) + gzip.compress(bytes(2**20)) * 2**10)
    write(tmp_path / "b.tar.gz", *many, extra=b"")
    for name, says in (("a.tar.gz", "a header of 1,073,741,824 bytes"), ("b.tar.gz", "too many files")):
        assert (tmp_path / name).stat().st_size < 2_000_000
        with pytest.raises(InputError, match=says):
            unpack(tmp_path / name, tmp_path / "set", WANTED, 2**40)
    assert everything(tmp_path) == {"a.tar.gz", "b.tar.gz"}


def test_members_of_negative_size_and_headers_without_end(tmp_path: Path) -> None:
    negative = member("set/c.bin")
    negative.size = -(10**9)
    with gzip.open(tmp_path / "a.tar.gz", "wb") as packed:
        packed.write(negative.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    chained = member("long", tarfile.XHDTYPE)
    with gzip.open(tmp_path / "b.tar.gz", "wb") as packed:
        packed.write(chained.tobuf() * 5_000)
    (tmp_path / "c.tar.gz").write_bytes(lzma.compress(bytes(4096)))
    for name in ("a.tar.gz", "b.tar.gz", "c.tar.gz"):
        with pytest.raises(InputError, match=r"cannot be unpacked|unpacks to more"):
            unpack(tmp_path / name, tmp_path / "set", WANTED, 10_000)
    assert not (tmp_path / "set").exists()

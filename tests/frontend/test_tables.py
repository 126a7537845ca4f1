"""The parser's tables between processes: kept, never trusted from elsewhere, never in the way."""

import os

import pytest

from hybridc.frontend import parser, tables
from hybridc.frontend.parser import parse

TEXT = "model m {\n  param dim = 64\n  block A { x += norm >> (a | b: c(1)) }\n  layers = (A A(w=1)) * 2 | A\n}\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parser._lark.cache_clear()
    yield tmp_path / "hybridc"
    parser._lark.cache_clear()


@pytest.fixture
def makes(monkeypatch):
    """How often tables are made."""
    made = []

    class Counting(tables.Lark):
        def __init__(self, *args, **options):
            made.append(args)
            super().__init__(*args, **options)

    monkeypatch.setattr(tables, "Lark", Counting)
    return made


def again():
    parser._lark.cache_clear()
    return parse(TEXT)


def stored(cache):
    (file,) = cache.iterdir()
    return file


def test_tables_are_made_once(cache, makes):
    first = parse(TEXT)
    assert stored(cache).stat().st_mode & 0o777 == 0o600 and cache.stat().st_mode & 0o077 == 0
    assert again() == first and len(makes) == 1


def broken(file):
    file.write_text('{"data": 3}')


def shortened(file):
    file.write_text(file.read_text()[:-100])


def writable_for_all(file):
    file.chmod(0o666)


def a_link(file):
    file.rename(file.parent.parent / "elsewhere.json")
    file.symlink_to(file.parent.parent / "elsewhere.json")


def a_pipe(file):
    file.unlink()
    os.mkfifo(file)


def too_large(file):
    with file.open("ab") as out:
        out.truncate(tables.MAX_BYTES + 1)


@pytest.mark.parametrize("spoil", [broken, shortened, writable_for_all, a_link, a_pipe, too_large])
def test_a_file_that_cannot_be_trusted_is_replaced(cache, makes, spoil):
    first = parse(TEXT)
    spoil(stored(cache))
    assert again() == first and len(makes) == 2
    assert stored(cache).is_file() and not stored(cache).is_symlink()
    assert again() == first and len(makes) == 2


def test_a_folder_that_others_write_to_is_left_alone(cache, makes):
    first = parse(TEXT)
    cache.chmod(0o777)
    before = stored(cache).stat().st_mtime_ns
    assert again() == first and len(makes) == 2
    assert stored(cache).stat().st_mtime_ns == before


def test_without_a_place_for_them_tables_are_made(cache, makes, monkeypatch):
    cache.write_text("a file where the folder should be")
    assert parse(TEXT) == again() and len(makes) == 2
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(cache / "missing"))
    assert again().model is not None and len(makes) == 3


def test_another_version_of_lark_has_tables_of_its_own(cache, makes, monkeypatch):
    parse(TEXT)
    monkeypatch.setattr(tables.lark, "__version__", "0.0")
    again()
    assert len(makes) == 2 and len(list(cache.iterdir())) == 2

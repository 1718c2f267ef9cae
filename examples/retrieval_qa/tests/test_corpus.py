"""The corpus is the library's own help texts, and a search finds those with all words, the best first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest


def test_passages_are_help_texts_without_signatures(example: SimpleNamespace) -> None:
    passages = example.corpus.passages()
    assert len(passages) > 1000
    assert passages["os.path.basename"] == "Returns the final component of a pathname"
    assert passages["str.isascii"].startswith("Return True if all characters in the string are ASCII, False otherwise.")
    assert passages["socket.getservbyport"].startswith("Return the service name from a port number")
    assert not [name for name in passages if name.split(".")[-1].startswith("_")]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("final component pathname", "os.path.basename"),
        ("hyperbolic tangent float", None),
        ("recursively deleting trees", "shutil.rmtree"),
        ('") OR zebra', None),
        ("", None),
    ],
)
def test_search(example: SimpleNamespace, data: Path, words: str, name: str | None) -> None:
    found = example.corpus.search(data / "manual.db", words)
    assert [found[0][0] if found else None] == [name]
    assert len(found) <= 3


def test_every_word_must_be_there(example: SimpleNamespace, data: Path) -> None:
    assert example.corpus.search(data / "manual.db", "final component pathname zebra") == []
    for _, text in example.corpus.search(data / "manual.db", "square root"):
        assert "square" in text.lower()


def test_an_index_that_is_not_there_says_how_to_make_it(example: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"make it with `python corpus\.py"):
        example.corpus.search(tmp_path / "manual.db", "word")
    assert list(tmp_path.iterdir()) == []

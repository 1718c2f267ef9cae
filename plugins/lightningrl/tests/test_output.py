"""One thread's prints go to a file, the others' do not."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from leyden_lightningrl.output import to_file


def test_only_the_calling_thread_is_redirected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside, done = threading.Event(), threading.Event()

    def trainer() -> None:
        with to_file(tmp_path / "log"):
            print("from the trainer")
            print("its errors", file=sys.stderr)
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=trainer)
    thread.start()
    assert inside.wait(10)
    print("from the user")
    done.set()
    thread.join()
    print("after")
    assert (tmp_path / "log").read_text() == "from the trainer\nits errors\n"
    assert capsys.readouterr().out == "from the user\nafter\n"
    assert "Split" not in type(sys.stdout).__name__


def test_streams_come_back_after_an_error(tmp_path: Path) -> None:
    before = sys.stdout
    with pytest.raises(ZeroDivisionError), to_file(tmp_path / "log"):
        raise ZeroDivisionError
    assert sys.stdout is before

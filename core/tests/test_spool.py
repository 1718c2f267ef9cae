"""What goes between a program and who started it: whole notes, whatever happens to who writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from leyden.errors import ConfigError, MissingTokenIds, RoutingError
from leyden.testing.recording import recorded_attempt
from leyden.types import LLMCall, Mark, Resources, Rollout, Span
from leyden.zero import spool
from leyden.zero.parent import FOLDER, VARIABLE, Recording, check_command
from leyden.zero.spool import Handed, Note, Reader, Spool


def span(number: int = 1, **given: object) -> Span:
    return msgspec.convert(
        {"rollout_id": "r", "attempt_id": "a", "span_id": f"s{number}", "sequence": number, "name": "n", **given}, Span
    )


def test_a_span_arrives_exactly_as_it_was(tmp_path: Path) -> None:
    call = LLMCall(prompt_ids=(1, 2**40), sampled_ids=(3,), logprobs=(-0.1234567890123456,), policy="default")
    sent = msgspec.structs.replace(span(attributes={"a": [1, 2.5, "é", None], "b": b"\x00"}), call=call)
    writer, reader = Spool(tmp_path), Reader(tmp_path)
    assert list(reader.notes()) == []
    writer.emit(sent)
    writer.write(Note(raised="KeyError"))
    assert list(reader.notes()) == [Note(span=sent), Note(raised="KeyError")]
    assert list(reader.notes()) == []
    writer.emit(span(2))
    assert [note.span for note in reader.notes()] == [span(2)]


def test_a_note_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    Spool(tmp_path).emit(span())
    [file] = tmp_path.glob("*.spans")
    whole, reader = file.read_bytes(), Reader(tmp_path)
    for length in (0, 2, 4, 10, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert list(reader.notes()) == []
    file.write_bytes(whole + whole[:7])
    assert [note.span for note in reader.notes()] == [span()]
    file.write_bytes(whole + whole)
    assert [note.span for note in reader.notes()] == [span()]


def test_what_cannot_be_written_is_counted_and_told_with_the_next_note(tmp_path: Path) -> None:
    writer = Spool(tmp_path / "later")
    writer.emit(span(1))
    writer.emit(span(2))
    assert writer.dropped == 2
    (tmp_path / "later").mkdir()
    writer.emit(msgspec.structs.replace(span(3), attributes={"too large": 2**70}))
    writer.emit(span(4))
    assert [(note.span, note.dropped) for note in Reader(tmp_path / "later").notes()] == [(span(4), 3)]
    assert writer.dropped == 0


def test_a_full_disk_leaves_whole_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Spool(tmp_path)
    writer.emit(span(1))
    whole = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: whole(descriptor, data[:5]))
    writer.emit(span(2))
    monkeypatch.undo()
    writer.emit(span(3))
    assert [note.span and note.span.sequence for note in Reader(tmp_path).notes()] == [1, 3]


def test_what_was_read_of_a_long_run_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FULL", 200)
    writer, reader, read = Spool(tmp_path), Reader(tmp_path), []
    for number in range(1, 101):
        writer.emit(span(number))
        if number % 7 == 0:
            read += [note.span.sequence for note in reader.notes() if note.span]
            assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 300
    read += [note.span.sequence for note in reader.notes() if note.span]
    assert sorted(read) == list(range(1, 101))


def test_a_file_that_is_broken_costs_its_rest_and_no_other(tmp_path: Path) -> None:
    Spool(tmp_path).emit(span(1))
    (tmp_path / "0-broken.spans").write_bytes((3).to_bytes(4, "big") + b"\xc1\xc1\xc1")
    reader = Reader(tmp_path)
    assert [note.span and note.span.sequence for note in reader.notes()] == [1]
    assert reader.broken == 1
    assert list(reader.notes()) == []


def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    writer = Spool(tmp_path)
    writer.emit(span(1))
    writer._lock.acquire()  # as by another thread of the parent at the moment of the fork
    pid = os.fork()
    if pid == 0:
        writer.forked()
        writer.emit(span(2))
        os._exit(0)
    os.waitpid(pid, 0)
    writer._lock.release()
    writer.emit(span(3))
    assert len(list(tmp_path.glob("*.spans"))) == 2
    assert sorted(note.span.sequence for note in Reader(tmp_path).notes() if note.span) == [1, 2, 3]


def test_a_program_that_closes_every_descriptor_gets_nothing_of_ours_into_its_files(tmp_path: Path) -> None:
    writer = Spool(tmp_path)
    writer.emit(span(1))
    assert writer._file is not None
    os.close(writer._file)
    writer.emit(span(2))
    number = writer._file
    os.close(number)
    own = os.open(tmp_path / "own", os.O_CREAT | os.O_WRONLY)
    try:
        assert own == number  # the lowest free one
        writer.emit(span(3))
        writer.forked()
        writer.emit(span(4))
        assert os.fstat(own).st_size == 0  # still there, and still empty
    finally:
        os.close(own)
    assert sorted(note.span.sequence for note in Reader(tmp_path).notes() if note.span) == [1, 2, 3, 4]
    assert writer.dropped == 0


def test_what_a_program_is_told_comes_back(tmp_path: Path) -> None:
    rollout = Rollout(id="r", task={"question": "é", "n": [1, None]}, status="running", created_at=1.5)
    for marks in ((), (Mark(selector="writer"),)):
        handed = Handed(rollout=rollout, attempt="a", resources=Resources(marks=marks), start_ns=7)
        spool.hand(tmp_path, handed)
        assert spool.handed(tmp_path) == handed
        assert (tmp_path / spool.MARKED).exists() == bool(marks)


def test_the_environment_gets_our_folder_once_and_before_the_users_own() -> None:
    with recorded_attempt() as attempt, Recording(attempt.scope) as recording:
        made = recording.environment({"PYTHONPATH": os.pathsep.join(["/mine", FOLDER, "/yours"]), "A": "b"})
        assert made == {
            "PYTHONPATH": os.pathsep.join([FOLDER, "/mine", "/yours"]),
            "A": "b",
            VARIABLE: str(recording.directory),
        }
        assert recording.environment({"PYTHONPATH": ""})["PYTHONPATH"] == FOLDER
        assert (recording.directory.stat().st_mode & 0o777) == 0o700  # the attempt holds the policies' keys
    assert not recording.directory.exists()


def test_a_recording_takes_in_spans_failures_and_losses() -> None:
    with recorded_attempt() as attempt:
        number = attempt.scope.next_sequence()
        with Recording(attempt.scope) as recording:
            writer = Spool(recording.directory)
            writer.write(Note(process=7))
            writer.emit(span(5000))
            writer.write(Note(failure=("MissingTokenIds", "no ids")))
            writer.write(Note(failure=("SomethingElse", "odd")))
            writer.dropped = 2
            writer.write(Note(raised="KeyError: 'x'"))
        assert attempt.scope.next_sequence() > 5001 > number
    assert (recording.processes, recording.rewarded, recording.raised) == ({7}, False, "KeyError: 'x'")
    assert [(type(error), str(error)) for error in attempt.scope.failures] == [
        (MissingTokenIds, "no ids"),
        (RoutingError, "SomethingElse: odd"),
    ]
    assert [(one.sequence, one.error) for one in attempt.spans] == [(5000, None), (5001, "SpansDropped")]
    assert "2 spans were dropped" in attempt.spans[1].name


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program"], "there is no program 'no-such-program'"),
        (["python", "-I", "app.py"], "python -I ignores the environment"),
        (["python3", "-W", "error", "-uE", "app.py"], "python3 -uE ignores the environment"),
        (["python", "-Xdev", "-S", "-m", "app"], "python -S ignores"),
        (["./app.py"], "write python ./app.py"),
    ],
)
def test_a_program_that_cannot_be_instrumented_is_an_error_with_a_remedy(
    command: Sequence[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _programs(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=message):
        check_command(command)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "app.py", "-I"],
        ["python", "-m", "app", "-E"],
        ["python", "-X", "importtime", "-c", "1", "-S"],
        ["python"],
        ["sh", "-E"],
    ],
)
def test_a_programs_own_options_are_its_own(
    command: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _programs(tmp_path, monkeypatch)
    check_command(command)


def _programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in ("python", "python3", "sh"):
        (folder / name).touch(0o755)
    (folder / "app.py").touch(0o644)
    monkeypatch.setenv("PATH", str(folder))

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from leyden import curve
from leyden.errors import InvalidInput
from leyden.metrics import MetricLog, duration
from leyden.summary import scores_of


def test_metrics_go_to_a_file_and_one_line_per_step_to_the_console(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = MetricLog(tmp_path, ["val"], stream=stream)
    log.log({"train/reward": 0.25, "loss": 3}, 1)
    log.log({"val/reward": 0.5}, 1)
    log.progress(1, 2)
    log.log({"train/reward": True}, 2)
    log.progress(2, 2)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [{k: v for k, v in row.items() if k != "time"} for row in rows] == [
        {"step": 1, "train/reward": 0.25, "loss": 3.0},
        {"step": 1, "val/reward": 0.5},
        {"step": 2, "train/reward": 1.0},
    ]
    first, second = stream.getvalue().splitlines()
    assert first.startswith("step 1/2  train/reward 0.25  val/reward 0.5  0s elapsed")
    assert second.startswith("step 2/2  train/reward 1  ")


def test_lines_that_are_no_metrics_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 2, "a": 1}\n{}\n[]\n"x"\n{"step": null}\n{"st')
    log = MetricLog(tmp_path, stream=io.StringIO())
    assert log.history == [(1, {"a": 1})]
    log.log({"a": 2}, 2)
    assert MetricLog(tmp_path, stream=io.StringIO()).history == [(1, {"a": 1}), (2, {"a": 2})]


def test_a_console_without_the_characters_gets_others(tmp_path: Path) -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="latin-1") as stream:
        MetricLog(tmp_path, stream=stream).say("training writer → défaut")
        assert raw.getvalue() == "training writer ? défaut\n".encode("latin-1")


def test_time_left_is_told_after_the_second_step(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = MetricLog(tmp_path, stream=stream)
    for step in (1, 2):
        log.log({"train/reward": 0.5}, step)
        log.progress(step, 9)
    assert ["left" in line for line in stream.getvalue().splitlines()] == [False, True]


def test_a_resumed_log_goes_on_and_a_cut_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "time": 50.0, "val/reward": 0.1}\n{"step": 2, "time": 100.0, "val/reward": 0.2}\n{"ste'
    )
    log = MetricLog(tmp_path, ["val"], stream=io.StringIO())
    assert 100 <= log.seconds < 110
    log.log({"val/reward": 0.3}, 2)  # the step that the kill cut off is done again
    log.log({"val/reward": 0.25}, 3)
    assert log.scores() == {"val/reward": [(1, 0.1), (2, 0.3), (3, 0.25)]}
    [row] = scores_of(log)
    assert (row["before"], row["after"], row["best"], row["best_step"], row["held_out"]) == (0.1, 0.25, 0.3, 2, True)
    lines = path.read_text().splitlines()
    assert lines[2] == '{"ste'
    assert [json.loads(line)["step"] for line in (*lines[:2], *lines[3:])] == [1, 2, 2, 3]


def test_what_is_no_number_is_an_error_and_nan_is_kept_as_nan(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, stream=io.StringIO())
    with pytest.raises(InvalidInput, match="metric 'x' must be a number"):
        log.log({"x": "much"}, 1)  # type: ignore[dict-item]
    log.log({"train/reward": math.inf}, 1)
    assert scores_of(log) == []


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0s"), (59.6, "1m00s"), (75, "1m15s"), (3720, "1h02m")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_curve_is_a_valid_picture_with_every_point(tmp_path: Path) -> None:
    curves = {"val/reward": [(0, 0.1), (5, math.nan), (10, 0.9)], "a<b": [(0, -1.0)]}
    paths = curve.write(curves, "run & <more>", tmp_path)
    root = ElementTree.parse(paths[0]).getroot()
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 3
    assert all(0 <= float(c.attrib["cx"]) <= 720 and 0 <= float(c.attrib["cy"]) <= 400 for c in circles)
    assert curve.write({}, "none", tmp_path) == []

"""The recorded run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_the_page_is_what_the_recorded_figures_give() -> None:
    spec = importlib.util.spec_from_file_location("record_of_a_run", HERE.parent / "autogen_calculator" / "record.py")
    assert spec is not None
    assert spec.loader is not None
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    assert (HERE / "RESULTS.md").read_text() == record.page(json.loads((HERE / "RESULTS.json").read_text()))

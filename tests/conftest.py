"""Benchmarks are collected only when asked for; tests of CUDA are skipped with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = config.getoption("benchmark_only", False) or any("benchmarks" in a for a in config.args)
    return True if collection_path == BENCHMARKS and not wanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cuda = [item for item in items if item.get_closest_marker("cuda")]
    if cuda:
        import torch

        if not torch.cuda.is_available():
            for item in cuda:
                item.add_marker(pytest.mark.skip(reason="no CUDA GPU: torch.cuda.is_available() is False"))

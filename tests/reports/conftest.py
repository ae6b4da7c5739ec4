"""Blocks as they were published, and a reader of bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from microbench.reports import Reading, read_reports

BLOCKS = sorted((Path(__file__).parent / "blocks").glob("*.txt"))


@pytest.fixture(scope="session")
def read_bytes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Reading]:
    path = tmp_path_factory.mktemp("reports") / "results.txt"

    def read(content: bytes) -> Reading:
        path.write_bytes(content)
        return read_reports(path)

    return read


@pytest.fixture(params=BLOCKS, ids=lambda path: path.stem)
def block(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path

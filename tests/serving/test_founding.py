"""The founding table: what was published is consistent in itself, one number is fitted, the rest is arithmetic."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from microbench.engines.prices import HostProfile
from microbench.serving import founding
from microbench.serving.founding import PUBLISHED, TRAFFIC, founding_table, founding_text


def test_the_published_figures_agree_with_each_other() -> None:
    tokens = int(TRAFFIC.draw().output_lens.sum())
    for column in PUBLISHED.values():
        assert column["request_throughput"] == pytest.approx(500 / column["duration"], rel=1e-3)
        assert column["output_throughput"] == pytest.approx(tokens / column["duration"], rel=1e-3)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> founding.FoundingTable:
    """Replays that take 10 s plus 25 s of host work off, half of the latter on; twice that for the larger model."""

    def replay(profile: HostProfile, model: str, scheduler: str, speed: float) -> Any:
        host = 25 / speed * (1.0 if scheduler == "run_to_completion" else 0.5)
        duration = (10 + host) * (2 if model == "qwen2.5-3b" else 1)
        return SimpleNamespace(metrics=dict.fromkeys(PUBLISHED["off"], duration))

    monkeypatch.setattr(founding, "_replay", replay)
    return founding_table()


def test_one_number_is_fitted_to_the_column_without_overlap(table: founding.FoundingTable) -> None:
    assert table.speed == pytest.approx(0.5, rel=0.01)
    duration = table.rows[0]
    assert (duration.metric, duration.fitted) == ("duration", True)
    assert not any(row.fitted for row in table.rows[1:])
    assert duration.off == pytest.approx(PUBLISHED["off"]["duration"], rel=0.01)
    assert duration.ratio == pytest.approx(35 / 60, rel=0.01)
    assert duration.off_points == pytest.approx(100 * (35 / 60 - 69.61 / 59.99), abs=1)
    assert duration.met is False
    assert table.larger_ratio == pytest.approx(35 / 60, rel=0.01)


def test_it_says_what_is_published_predicted_and_fitted(table: founding.FoundingTable) -> None:
    document = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert document["source"] == founding.URL
    assert document["modelled"] is True
    assert {row["metric"] for row in document["rows"]} == set(PUBLISHED["on"])
    text = founding_text(table)
    assert "misses 8" in text
    assert "(computed)" in text
    assert len(text.splitlines()) == 5 + len(PUBLISHED["on"])

"""Targets: one GPU by one name, and nothing simulated by fallback without saying so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from microbench import target as target_module
from microbench.errors import Unavailable, UsageError
from microbench.target import choose, parse_target, visible_gpu
from synthetic_models import Gpu, gpu


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Gpu | None:
    """This machine's CUDA GPU, as the test wants it."""
    found: Gpu | None = gpu(request.param) if request.param else None
    monkeypatch.setattr(target_module, "visible_gpu", lambda: found)
    return found


@pytest.mark.parametrize("here", [None], indirect=True)
@pytest.mark.parametrize(
    ("target", "card", "expected"),
    [
        (None, None, "real+sim:a100-80g"),
        (None, "h100", "real+sim:h100"),
        ("real+sim:l4", None, "real+sim:l4"),
        ("virtual+sim:h200", "h200", "virtual+sim:h200"),
    ],
)
def test_without_a_gpu_the_named_one_is_modelled(
    here: None, target: str | None, card: str | None, expected: str
) -> None:
    chosen, modelled = choose(target, card)
    assert str(chosen) == expected
    assert modelled == chosen.gpu


@pytest.mark.parametrize("here", ["h200"], indirect=True)
def test_with_a_gpu_it_is_the_default_and_keeps_its_own_name(here: Gpu) -> None:
    assert str(choose(None, None)[0]) == str(choose(None, "h200")[0]) == "real+torch"
    assert choose(None, None)[1] == here
    # another card asked for is modelled, not measured under its name
    assert str(choose(None, "b200")[0]) == "real+sim:b200"
    with pytest.raises(UsageError, match=r"--gpu b200, but target real\+torch is this machine's h200"):
        choose("real+torch", "b200")


@pytest.mark.parametrize("here", [None], indirect=True)
def test_two_gpus_in_one_question_are_refused(here: None) -> None:
    with pytest.raises(UsageError, match=r"--gpu h100, but target real\+sim:a100-80g models a100-80g"):
        choose("real+sim:a100-80g", "h100")


@pytest.mark.parametrize("here", [None], indirect=True)
def test_a_gpu_that_is_not_there_says_what_is_missing(here: None) -> None:
    with pytest.raises(Unavailable, match=r"\S"):
        choose("real+torch", None)


def cuda(name: str) -> Any:
    return SimpleNamespace(
        is_available=lambda: True,
        get_device_name=lambda index: name,
        get_device_properties=lambda index: SimpleNamespace(total_memory=24 * 2**30),
    )


def test_a_known_card_is_recognised_by_its_device_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda", cuda("NVIDIA H200"))
    assert visible_gpu() == gpu("h200")


def test_an_unknown_card_keeps_its_name_and_memory_and_says_its_speeds_are_not_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda", cuda("NVIDIA GeForce RTX 3090"))
    found = visible_gpu()
    assert found is not None
    assert (found.name, found.memory_bytes, found.fit_error) == ("nvidia-geforce-rtx-3090", 24 * 2**30, None)
    assert "not among the known" in found.source[0]


@pytest.mark.parametrize("text", ["", "real", "real+", "real+sim", "gpu+sim:h100", "virtual+torch", "real+torch:h100"])
def test_other_targets_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert len(str(caught.value).splitlines()) == 1

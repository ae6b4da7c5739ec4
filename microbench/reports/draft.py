"""A report while its rows come in: keeps texts, and turns them into numbers when all are there."""

from __future__ import annotations

from microbench.reports.metrics import unit
from microbench.reports.numbers import decimal_marks, parse_number
from microbench.reports.report import MOST_PROBLEMS, MOST_UNKNOWN_ROWS, Report


class Draft:
    """The rows of one run. Numbers wait as text, because a comma is read in the light of all of them."""

    def __init__(self, line: int, tool: str, layout: str) -> None:
        self.line = line
        self.tool = tool
        self.layout = layout
        self.settings: dict[str, str] = {}
        self.truncated = False
        self.last = ""
        """The metric that was read last."""
        self._metrics: dict[str, tuple[str, float, str]] = {}
        self._unknown: list[str] = []
        self._dropped = 0
        self._problems: list[str] = []

    def metric(self, name: str, number: str, factor: float, row: str) -> None:
        """A row with a known meaning; of two that disagree the first counts, and both are shown."""
        known = self._metrics.get(name)
        if known is None:
            self._metrics[name] = (number, factor, row)
        elif (known[0], known[1]) != (number, factor) and not self._close(known, number, factor):
            self.problem(f"{name} is there twice: the first is taken")
            self.unknown(row)
        self.last = name

    @staticmethod
    def _close(known: tuple[str, float, str], number: str, factor: float) -> bool:
        """Whether two rows say the same, but for how many digits they print."""
        first, second = parse_number(known[0]), parse_number(number)
        return first is not None and second is not None and first * known[1] == second * factor

    def setting(self, name: str, text: str, row: str) -> None:
        if self.settings.setdefault(name, text) != text:
            self.problem(f"{name} is there twice: the first is taken")
            self.unknown(row)

    def unknown(self, row: str) -> None:
        if len(self._unknown) < MOST_UNKNOWN_ROWS:
            self._unknown.append(row)
        else:
            self._dropped += 1

    def problem(self, text: str) -> None:
        if len(self._problems) < MOST_PROBLEMS and text not in self._problems:
            self._problems.append(text)

    @property
    def empty(self) -> bool:
        """Whether no row had a known meaning."""
        return not self._metrics

    def has(self, *names: str) -> bool:
        return all(name in self._metrics for name in names)

    def report(self, source: str, run: int) -> Report:
        """What was read."""
        marks = decimal_marks(number for number, _, _ in self._metrics.values())
        metrics: dict[str, float] = {}
        for name, (number, factor, row) in self._metrics.items():
            value = parse_number(number, marks)
            if value is None:
                self.problem(f"{name}: {number[:40]!r} is no number that can be read in one way only")
                self.unknown(row)
                continue
            # 13525.6862 ms are 13.5256862 s: rounded as a decimal, so that no binary dust shows
            metrics[name] = value if factor == 1 else float(f"{value * factor:.15g}")
            if value < 0:
                self.problem(f"{name} is negative")
        if marks == {",", "."}:
            self.problem("some numbers have a decimal comma and others a decimal point")
        return Report(
            source=source,
            run=run,
            line=self.line,
            tool=self.tool,
            layout=self.layout,
            metrics=metrics,
            units={name: unit(name) for name in metrics},
            settings=self.settings,
            unknown=tuple(self._unknown),
            dropped=self._dropped,
            truncated=self.truncated,
            problems=tuple(self._problems),
        )

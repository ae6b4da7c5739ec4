"""Reports of serving benchmarks that others ran: read, compare, and the public pairs of runs with and without overlap.

`read_reports(path)`    result blocks and JSON lines in a file
`compare(on, off)`      ratios of two runs
`public_pairs()`        the table of published pairs that ships with the package; `read_pairs(path)` for one's own
"""

from __future__ import annotations

from microbench.reports.compare import Comparison, compare, select_run
from microbench.reports.pairs import Pair, public_pairs, read_pairs
from microbench.reports.read import read_reports
from microbench.reports.report import Reading, Report

__all__ = [
    "Comparison",
    "Pair",
    "Reading",
    "Report",
    "compare",
    "public_pairs",
    "read_pairs",
    "read_reports",
    "select_run",
]

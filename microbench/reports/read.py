"""Read a file: result blocks and JSON documents, in the order in which they stand there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from microbench.errors import UsageError
from microbench.reports import lines
from microbench.reports.blocks import BlockReader
from microbench.reports.draft import Draft
from microbench.reports.json_lines import JsonReader
from microbench.reports.report import Reading, Report

MOST_RUNS = 1000
"""Runs that are read of one file."""
ODD_SHARE = 0.05
"""Share of characters that are no text, from which a file counts as binary."""


def read_reports(path: str | Path) -> Reading:
    """What can be read of a file of any size, in bounded memory.

    A file with nothing in it gives no reports and a reason. UsageError, one line, for a path that is no readable file.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise UsageError(f"{path}: {kind}; give a file with results")
        with path.open("rb") as file:
            text = lines.Text(file)
            source = str(path)
            reports: list[Report] = []
            problems: list[str] = []
            cut = _Cut()
            for draft in _drafts(text, cut):
                if len(reports) == MOST_RUNS:
                    problems.append(f"more than {MOST_RUNS} runs: the others were not read; split the file")
                    break
                reports.append(_named_if_doubled(draft.report(source, len(reports) + 1), reports))
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be read: {reason}") from None
    if cut.lines:
        problems.append(f"{cut.lines} lines have over {lines.MOST_CHARACTERS} characters: their ends were not read")
    if cut.documents:
        problems.append(f"{cut.documents} JSON documents are too long even without their lists: they were not read")
    if text.nul:
        problems.append("NUL bytes were dropped")
    if not reports:
        problems.insert(0, _why_nothing(text))
    return Reading(source, tuple(reports), tuple(problems))


class _Cut:
    """Counts what was too long to be read."""

    lines = 0
    documents = 0


def _drafts(text: lines.Text, cut: _Cut) -> Iterator[Draft]:
    """Each line goes to the block reader, or to the JSON reader if a document begins there or is open."""
    blocks, documents = BlockReader(), JsonReader()
    row, in_json = "", False
    for piece in text:
        found: list[Draft] = []
        if piece.starts:
            row = ""
            if documents.open and documents.breaks_off(piece.text):
                found += documents.finish()
            in_json = documents.open or documents.may_begin(piece.text)
        if in_json:
            found += documents.feed(piece.text, piece.number)
        if found:
            yield from blocks.finish()  # a block ends where a document begins
            yield from found
        if in_json:
            continue
        room = lines.MOST_CHARACTERS - len(row)
        row += piece.text[: room + 1]
        if piece.ends:
            too_long = len(row) > lines.MOST_CHARACTERS
            cut.lines += too_long
            yield from blocks.feed(row, piece.number, cut=too_long or piece.cut)
    yield from blocks.finish()
    yield from documents.finish()
    cut.documents = documents.too_long


def _named_if_doubled(report: Report, before: list[Report]) -> Report:
    for other in before[-10:]:
        if report.metrics and (other.metrics, other.settings, other.unknown) == (
            report.metrics,
            report.settings,
            report.unknown,
        ):
            return replace(report, problems=(*report.problems, f"the same as run {other.run}"))
    return report


def _why_nothing(text: lines.Text) -> str:
    if text.characters == 0:
        return "the file is empty"
    if text.odd > ODD_SHARE * text.characters:
        return "a binary file: no result block and no JSON line in it"
    return "no result block and no JSON line of bench_serving, vllm bench serve, trtllm-bench or LMDeploy in it"

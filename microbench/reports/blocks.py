"""Printed result blocks: bench_serving, vllm bench serve, trtllm-bench, LMDeploy.

A block begins at its title (`==== Serving Benchmark Result ====`, `= PERFORMANCE OVERVIEW` between rules) and ends at
its closing rule. Where the title or the closing rule is missing, what is there is read, and said to be cut off. What
stands before the title on its line (a log's time stamp, a comment sign) is taken off the rows that have it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from microbench.reports import tables
from microbench.reports.draft import Draft
from microbench.reports.lines import clean
from microbench.reports.metrics import SETTINGS, normal, of_label

MOST_STRANGE_LINES = 64
"""Lines in a row without a known one, after which a block without a closing rule is over."""

_TITLE = re.compile(r"(?P<prefix>.*?)(?<!=)={3,} (?P<title>[^=\s](?:[^=]*[^=\s])?) ={3,}")
_RULE = re.compile(r"={10,}")
_DASHES = re.compile(r"-{10,}")
_TRT_SECTION = re.compile(r"= (?P<title>[A-Z][A-Z +/()a-z0-9_]*)")
_NUMBER = re.compile(r"[+-]?[0-9]")
_UNITS = re.compile(r"\s*(?:s|token/s|req/s)\.?")
_COLUMNS = re.compile(r"(?P<label>\S.*?\S)\s{2,}(?P<value>\S+)")
_SERVING = "serving benchmark result"
_LMDEPLOY = ("profile throughput", "profile pipeline", "profile generation")
_FIRST_SECTIONS = ("engine details", "pytorch backend")
_SERVING_SECTIONS = ("time to first token", "inter-token latency", "end-to-end latency")
_LAST_ROW = re.compile(r"(?:p99|max)_itl_ms")
_LAST_ROWS = {"lmdeploy": re.compile("request_throughput"), "trtllm-bench": re.compile("")}
"""The metric that a block ends with, so that only its closing rule is missing."""


class BlockReader:
    """Give it line after line; it gives back drafts of the blocks that are over."""

    def __init__(self) -> None:
        self._draft: Draft | None = None
        self._prefix: re.Pattern[str] | None = None
        self._known_title = False
        self._closed = False
        self._strange = 0
        self._sections: set[str] = set()
        self._section = ""
        self._columns: tuple[str, ...] | None = None
        self._before = ("", "")
        self._number = 0
        self._cut = False

    def feed(self, text: str, number: int, *, cut: bool = False) -> Iterator[Draft]:
        """One line. A row that is `cut` off may lack digits, so its number is not read."""
        if self._draft is None and not self._may_begin(text):
            if text:
                self._before = ("", "")
            return
        self._number, self._cut = number, cut
        text = clean(text)
        title = _TITLE.fullmatch(text) if "===" in text else None
        if title:
            yield from self.finish()
            self._open_titled(title, number)
            return
        stripped = self._without_prefix(text).strip()
        section = _TRT_SECTION.fullmatch(stripped)
        if section and (self._before[1].startswith("=====") or self._layout() == "trtllm-bench"):
            yield from self._trt_section(normal(section["title"]), number)
        elif self._draft is None:
            self._maybe_begin_untitled(stripped, number)
        elif self._closes(self._draft, stripped):
            yield from self._finish(closed=True)
        else:
            yield from self._row(stripped)
        if stripped:
            self._before = (self._before[1], stripped)

    def finish(self) -> Iterator[Draft]:
        """End of the file, or of what can belong to the block."""
        yield from self._finish(closed=self._closed)

    @staticmethod
    def _may_begin(text: str) -> bool:
        """A cheap look at a line outside a block."""
        return "==" in text or "(" in text or text.startswith(("= ", "---", "concurrency:", "elapsed_time:"))

    def _layout(self) -> str:
        return self._draft.tool if self._draft else ""

    @staticmethod
    def _closes(draft: Draft, row: str) -> bool:
        """Whether this is a rule that ends the block beyond doubt."""
        if draft.layout == "list":  # LMDeploy's older scripts have rules of dashes
            return bool(_DASHES.fullmatch(row)) and draft.has("request_throughput")
        return bool(_RULE.fullmatch(row)) and draft.tool != "trtllm-bench"

    def _without_prefix(self, text: str) -> str:
        match = self._prefix.match(text) if self._prefix else None
        return text[match.end() :] if match else text

    def _begin(self, number: int, tool: str, layout: str = "block") -> Draft:
        self._draft, self._closed, self._strange = Draft(number, tool, layout), False, 0
        self._sections, self._section, self._columns = set(), "", None
        self._known_title = True
        return self._draft

    def _open_titled(self, title: re.Match[str], number: int) -> None:
        self._before = ("", "")
        name = normal(title["title"])
        tool = "lmdeploy" if name.startswith(_LMDEPLOY) else "unknown"
        self._begin(number, tool, "table" if tool == "lmdeploy" else "block")
        self._known_title = tool == "lmdeploy" or name == _SERVING
        parts = re.split(r"[0-9]+", title["prefix"])
        self._prefix = re.compile("[0-9]+".join(map(re.escape, parts))) if title["prefix"].strip() else None

    def _trt_section(self, name: str, number: int) -> Iterator[Draft]:
        if self._layout() != "trtllm-bench" or name in self._sections or name in _FIRST_SECTIONS:
            yield from self.finish()
            self._begin(number, "trtllm-bench")
        self._sections.add(name)
        self._section, self._closed = name, False

    def _maybe_begin_untitled(self, row: str, number: int) -> None:
        """A block whose head is cut off, or one that has no title."""
        label, colon, value = row.partition(":")
        if normal(label) == "elapsed_time" and _NUMBER.match(value.strip()):
            draft = self._begin(number, "lmdeploy", "list")
            before_label, _, before_value = self._before[1].partition(":")
            if normal(before_label) == "concurrency":
                draft.setting("max_concurrency", before_value.strip(), self._before[1])
        else:
            section = _section(row)
            known = colon and "(" in label and of_label(label) and _NUMBER.match(value.strip())
            if not known and not section.startswith(_SERVING_SECTIONS):
                return
            draft = self._begin(number, "unknown")
            self._known_title = False
            draft.truncated = True
            draft.problem("cut off: no title, so rows may be missing before the first")
        self._prefix = None
        for _ in self._row(row):
            pass  # the first row of a block ends none

    def _row(self, stripped: str) -> Iterator[Draft]:
        draft = self._draft
        assert draft is not None
        if not stripped or _DASHES.fullmatch(stripped):
            return
        if _RULE.fullmatch(stripped):
            # trtllm-bench has rules on both sides of its sections' titles, too
            self._closed = not _TRT_SECTION.fullmatch(self._before[1])
            return
        if self._closed:
            yield from self.finish()
            self._maybe_begin_untitled(stripped, self._number)
            return
        section = _section(stripped)
        if section:
            self._section = section
            self._strange = 0
            if not section.startswith(_KNOWN_SECTIONS):
                draft.unknown(stripped)
            return
        if self._cut:
            draft.problem("a row is cut off, so its number was not read")
        elif self._take(draft, stripped):
            self._strange = 0
            return
        draft.unknown(stripped)
        self._strange += 1
        if self._strange >= MOST_STRANGE_LINES:
            yield from self._finish(closed=False)

    def _take(self, draft: Draft, stripped: str) -> bool:
        """Whether the row is known; then it is in the draft."""
        columns = tables.stat_columns(stripped)
        if columns:
            self._columns = columns
            return True
        if stripped.split() == ["Input", "Output", "Seq.", "Length"]:
            return True
        found = tables.latency_row(stripped, self._columns) if self._columns else None
        if found is None and draft.tool == "lmdeploy":
            found = tables.latency_list(stripped)
        if found is None and draft.tool == "trtllm-bench":
            found = tables.token_row(stripped)
        if found is None:
            found = self._label_and_value(draft, stripped)
        for name, number, factor in found or ():
            draft.metric(name, number, factor, stripped)
        return found is not None

    def _label_and_value(self, draft: Draft, row: str) -> tables.Found | None:
        label, colon, value = row.partition(":")
        if not colon:
            match = _COLUMNS.fullmatch(row) if draft.tool == "lmdeploy" else None
            if not match:
                return None
            label, value = match["label"], match["value"]
        label, value = normal(label), value.strip()
        if label in SETTINGS and value:
            draft.setting(SETTINGS[label], value, row)
            return []
        if label == "concurrency" and draft.tool == "lmdeploy":
            draft.setting("max_concurrency", value, row)
            return []
        name = tables.tagged(label, self._section) if draft.tool == "trtllm-bench" else None
        known = (name, 1.0) if name else of_label(label)
        if known is None:
            return None
        if known[0] == "completed" and re.fullmatch(r"[0-9]+/[0-9]+", value):  # SGLang's diffusion: of how many
            value, _, sent = value.partition("/")
            draft.setting("num_prompts", sent, row)
        return _numbers(known[0], value, known[1], low_latency=self._section == "throughput overview")

    def _finish(self, *, closed: bool) -> Iterator[Draft]:
        draft, self._draft = self._draft, None
        self._before, self._prefix = ("", ""), None
        if draft is None or (draft.empty and not self._known_title):
            return
        if not closed and not draft.truncated:
            draft.truncated = not _LAST_ROWS.get(draft.tool, _LAST_ROW).fullmatch(draft.last)
            draft.problem(
                "cut off: no closing rule, so rows may be missing after the last"
                if draft.truncated
                else "no closing rule, but the last row is one that blocks end with"
            )
        if draft.empty:
            draft.problem("no row of it is known")
        elif draft.tool == "trtllm-bench" and closed and not draft.has("request_throughput", "duration"):
            draft.truncated = True  # a rule stands before each section, so it may have been any of them
            draft.problem("cut off: the overview of the performance is missing, or rows of it")
        if draft.tool == "unknown":
            draft.tool = _tool(draft)
        yield draft


_KNOWN_SECTIONS = (
    *_SERVING_SECTIONS,
    "time per output token",
    "client-side queueing",
    "queue-inclusive",
    "speculative decoding",
    "request latency breakdown",
    "percentiles statistics",
    "per-request",
    "number of draft tokens",
    "number of accepted draft tokens",
    "draft acceptance rate",
    "acceptance length details",
)


def _section(row: str) -> str:
    """The title of a line such as `----Time to First Token----`, in lower case; "" if it is none."""
    return normal(row.strip("-")) if row.startswith("--") else ""


def _numbers(name: str, value: str, factor: float, *, low_latency: bool) -> tables.Found | None:
    """The number of a row, with what may stand behind it; None if anything else does."""
    if low_latency and name == "total_throughput":
        name = "output_throughput"  # trtllm-bench latency counts output tokens only in this row
    elif low_latency and name == "output_throughput":
        name = "generation_throughput"  # and here those after the first token
    if not _NUMBER.match(value):
        return None
    number = value
    match = re.fullmatch(r"(\S*[0-9])(\D+)", value)
    if match and _UNITS.fullmatch(match[2]) and name in ("duration", "request_throughput", *_TOKEN_RATES):
        number = match[1]
    return [(name, number, factor)]


_TOKEN_RATES = ("output_throughput", "total_throughput")


def _tool(draft: Draft) -> str:
    """Which tool printed a block, from rows that only one of them has."""
    backend = draft.settings.get("backend", "")
    if "task" in draft.settings and draft.has("duration"):
        return "sglang diffusion"
    if backend or draft.has("total_output_tokens_retokenized") or draft.has("input_throughput"):
        return "bench_serving"
    if "max_concurrency" in draft.settings or draft.has("total_throughput") or draft.has("failed"):
        return "vllm bench serve"
    return "unknown"

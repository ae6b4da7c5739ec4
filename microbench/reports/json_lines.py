"""JSON lines of bench_serving, the JSON of `vllm bench serve --save-result` and of trtllm-bench's --report_json.

With details, such a document has a time for each token and is as long as one likes; so lists are left out while it is
read, and what is held is its flat part only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from microbench.reports.draft import Draft
from microbench.reports.metrics import JSON_SETTINGS, latency_name, of_key
from microbench.reports.tables import statistic

MOST_CHARACTERS = 1 << 18
"""Of a document without its lists."""
MOST_DEPTH = 3
"""Objects in objects that are kept; deeper ones are left out."""
FEWEST_KEYS = 2
"""Known metrics that make a JSON object a report."""

_BEGIN = re.compile(r'\{\s*(?:"|$)')
_OUTSIDE = re.compile(r'["\[\]{},]')
_HIDDEN = re.compile(r'["\[\]{}]')
_INSIDE = re.compile(r'["\\]')
_TEXT = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

_FIRST = frozenset('"{}[],:-0123456789tfnNI') | {""}
"""What a line of a JSON document can begin with."""

_TRT = {
    ("performance", "total_latency_ms"): ("duration", 1e-3),
    ("performance", "avg_request_latency_ms"): ("mean_e2e_latency_ms", 1),
    ("performance", "request_throughput_req_s"): ("request_throughput", 1),
    ("performance", "system_output_throughput_tok_s"): ("output_throughput", 1),
    ("performance", "system_total_throughput_tok_s"): ("total_throughput", 1),
    ("performance", "output_throughput_per_user_tok_s"): ("per_user_output_throughput", 1),
    ("performance", "output_throughput_per_gpu_tok_s"): ("per_gpu_output_throughput", 1),
    ("streaming_metrics", "token_output_speed_tok_s"): ("per_user_output_speed", 1),
    ("streaming_metrics", "avg_ttft_ms"): ("mean_ttft_ms", 1),
    ("streaming_metrics", "avg_tpot_ms"): ("mean_tpot_ms", 1),
    ("request_info", "avg_num_concurrent_requests"): ("concurrency", 1),
    ("request_info", "avg_input_length"): ("mean_input_tokens", 1),
    ("request_info", "avg_output_length"): ("mean_output_tokens", 1),
}
_TRT_PERCENTILES = {
    "request_latency_percentiles_ms": "e2e_latency",
    "ttft_percentiles": "ttft",
    "tpot_percentiles": "tpot",
}
_TRT_SETTINGS = ("engine", "world_info", "request_info")


class JsonReader:
    """Give it pieces of text; it gives back drafts of the documents that are complete, or broken off."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._length = 0
        self._stack: list[str] = []
        self._in_text = self._escaped = self._hidden = False
        self._comma = 0
        self._line = 0
        self._too_long = False
        self._last = ""
        self.too_long = 0
        """Documents that were left out."""

    @property
    def open(self) -> bool:
        """Whether a document has begun and not ended."""
        return bool(self._stack)

    @staticmethod
    def may_begin(text: str) -> bool:
        """Whether a document may begin with this line."""
        return bool(_BEGIN.match(text.lstrip(" \t[")))

    def breaks_off(self, text: str) -> bool:
        """Whether this line can't go on with the document that is open."""
        ended = self._last not in (",", "[", ":", "{")
        first = text.lstrip()[:1]
        return self._in_text or (text.startswith("{") and ended) or first not in _FIRST

    def feed(self, text: str, number: int) -> Iterator[Draft]:
        """A line of a document, or a part of it."""
        self._last = text.rstrip()[-1:] or self._last
        at = 0
        while at < len(text):
            if not self._stack:
                begin = _BEGIN.search(text, at)
                if not begin:
                    return
                at = begin.start()
                self._begin(number)
                self._open("{")
                at += 1
                continue
            at = self._step(text, at)
            if not self._stack:
                yield from self.finish()

    def finish(self) -> Iterator[Draft]:
        """End of the document; if it isn't closed, what can be told of it."""
        text, broken = "".join(self._kept), bool(self._stack)
        if broken:
            text = text[: self._comma] + "}"
        too_long, line = self._too_long, self._line
        self.too_long += too_long
        self._stack, self._kept, self._in_text, self._too_long = [], [], False, False
        if text and not too_long:
            draft = _draft(text, line, broken)
            if draft:
                yield draft

    def _begin(self, number: int) -> None:
        self._kept, self._length, self._comma, self._line = [], 0, 0, number
        self._in_text = self._escaped = self._too_long = self._hidden = False

    def _step(self, text: str, at: int) -> int:
        """Up to the next character that matters; returns where to go on."""
        if self._escaped:
            self._keep(text[at])
            self._escaped = False
            return at + 1
        pattern = _INSIDE if self._in_text else _HIDDEN if self._hidden else _OUTSIDE
        found = pattern.search(text, at)
        end = found.start() if found else len(text)
        self._keep(text[at:end])
        if not found:
            return end
        mark = found[0]
        if mark == "\\":
            self._keep(mark)
            self._escaped = True
        elif mark == '"':
            whole = None if self._in_text else _TEXT.match(text, end + 1)
            if whole:
                self._keep(text[end : whole.end()])
                return whole.end()
            self._keep(mark)
            self._in_text = not self._in_text
        elif mark in "[{":
            self._open(mark)
        elif mark in "]}":
            self._shut(mark)
        else:
            if len(self._stack) == 1:
                self._comma = self._length
            self._keep(mark)
        return end + 1

    def _open(self, mark: str) -> None:
        if not self._hidden:
            self._put(mark)
        if len(self._stack) < 1000:
            self._stack.append(mark)
        else:
            self._too_long = True
        self._hidden = self._is_hidden()

    def _shut(self, mark: str) -> None:
        self._stack.pop()
        self._hidden = self._is_hidden()
        if not self._hidden:
            self._put(mark)

    def _is_hidden(self) -> bool:
        """Whether what comes now stands in a list or too deep."""
        return "[" in self._stack[: MOST_DEPTH + 1] or len(self._stack) > MOST_DEPTH

    def _keep(self, text: str) -> None:
        if text and not self._hidden:
            self._put(text)

    def _put(self, text: str) -> None:
        if self._length + len(text) > MOST_CHARACTERS:
            self._too_long = True
            return
        self._kept.append(text)
        self._length += len(text)


def _draft(text: str, line: int, broken: bool) -> Draft | None:
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        first: dict[str, Any] = {}
        for key, value in found:
            if key in first:
                twice.append(key)
            first.setdefault(key, value)
        return first

    try:
        document = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    draft = Draft(line, _tool(document), "json")
    draft.truncated = broken
    if broken:
        draft.problem("cut off: the JSON document does not end, so keys may be missing")
    for key in twice[:3]:
        draft.problem(f"{key[:60]} is there twice: the first is taken")
    known = 0
    for key, value in document.items():
        if isinstance(value, dict):
            known += _nested(draft, key, value)
        else:
            known += _flat(draft, key, value)
    return draft if known >= FEWEST_KEYS else None


def _flat(draft: Draft, key: str, value: Any) -> int:
    name = of_key(key)
    if value is None or value == []:
        return 0
    number = _number(value)
    if name and number:
        draft.metric(name, number, 1, _row(key, value))
        return 1
    if key in JSON_SETTINGS:
        draft.setting(key, str(value)[:200], _row(key, value))
    else:
        draft.unknown(_row(key, value))
    return 0


def _nested(draft: Draft, group: str, values: dict[str, Any]) -> int:
    known = 0
    for key, value in values.items():
        number = _number(value)
        if isinstance(value, dict) and key in _TRT_PERCENTILES:
            known += _percentiles(draft, key, value)
        elif (group, key) in _TRT and number:
            name, factor = _TRT[group, key]
            draft.metric(name, number, factor, _row(f"{group}.{key}", value))
            known += 1
        elif value is not None and value != []:
            name = "num_prompts" if key == "num_requests" else key
            if group in _TRT_SETTINGS and not isinstance(value, dict):
                draft.setting(name[:200], str(value)[:200], _row(f"{group}.{key}", value))
            else:
                draft.unknown(_row(f"{group}.{key}", value))
    return known


def _percentiles(draft: Draft, key: str, values: dict[str, Any]) -> int:
    known = 0
    for label, value in values.items():
        stat, number = statistic(label), _number(value)
        if stat and number:
            draft.metric(latency_name(stat, _TRT_PERCENTILES[key]), number, 1, _row(f"{key}.{label}", value))
            known += 1
        else:
            draft.unknown(_row(f"{key}.{label}", value))
    return known


def _number(value: Any) -> str:
    """A JSON number as text; "" for anything else. NaN and infinities are no numbers that could be compared."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return repr(value) if abs(value) < 1e300 else ""


def _row(key: str, value: Any) -> str:
    return f"{key[:200]}: {json.dumps(value)[:400]}"


def _tool(document: dict[str, Any]) -> str:
    if isinstance(document.get("performance"), dict):
        return "trtllm-bench"
    if "total_token_throughput" in document or "endpoint_type" in document or "tokenizer_id" in document:
        return "vllm bench serve"
    if "total_output_tokens_retokenized" in document or "dataset_name" in document:
        return "bench_serving"
    return "unknown"

"""SGLang 0.5.23's host work: 0.5.15's, except that a request known to end with the step in flight gets no other.

Shape after managers/scheduler.py of that version (Apache-2.0), `enable_skip_finishing_decode`, written anew. Known are
the requests that end by length; one that a stop token will end still costs a dead row.
"""

from __future__ import annotations

from typing import Any

from microbench.engines import sglang_0_5_15


class Work(sglang_0_5_15.Work):
    """The engine's step on the host."""

    def unfinished(self, reqs: list[Any]) -> list[int]:
        going = super().unfinished(reqs)
        ahead = self.in_flight
        return [i for i in going if len(reqs[i].output_ids) + ahead < reqs[i].sampling.max_new_tokens]

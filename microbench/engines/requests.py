"""Real host work on real request objects: the part that all engines share. Priced twin: `engines.priced`.

An engine file subclasses `RequestWork` with its own request class, result loop and streaming. Tensors live where the
device says (CPU for a modelled GPU), so scheduling costs real torch calls.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from microbench.engines.workload import Workload
from microbench.errors import MicrobenchError, UsageError

VOCABULARY = 151_936
STOP_TOKEN = 2
START_S = 30
LONGEST_ADDRESS = 100
"""A Unix socket's path holds 107 bytes; the second socket's name is shorter."""


def carry(owner: Any, fields: int) -> None:
    """Give an object fields that no decode step reads, until it has as many as the engine's has.

    They matter: past 30 fields CPython gives each object a dict of its own, so reading one costs a look-up, and a
    batch of such objects does not stay in the cache while the host waits for the GPU.
    """
    for i in range(fields - len(vars(owner))):
        setattr(owner, f"unread_{i}", None)


class RequestBatch:
    """One decode batch: the requests and their device tensors."""

    def __init__(self, reqs: list[Any], work: RequestWork) -> None:
        self.reqs, self.work = reqs, work
        self.input_ids: Any = None
        self.seq_lens: Any = None
        self.rows: Any = None
        self.slots: Any = None
        self.news: Any = None  # what `process` leaves for `stream`, where the engine builds it there
        self.future_base = 0

    @property
    def size(self) -> int:
        return len(self.reqs)

    def next_ids(self) -> Any:
        """A fixed function of the last token and the position: any lost, repeated or late token changes the rest."""
        return (self.input_ids * 31 + self.seq_lens * 7 + 11) % (VOCABULARY - 10) + 10


class RequestWork:
    """Requests, KV slots and future ids of one engine instance; the engine files fill in the rest."""

    token_dtype = torch.int32

    def __init__(self, workload: Workload, *, overlap: bool, device: str = "cpu") -> None:
        self.workload, self.overlap, self.device = workload, overlap, device
        self.dead_rows = self.tokens_out = self.sent_bytes = 0
        rng = np.random.default_rng(workload.seed)
        lengths, remaining = workload.prompt_lengths(), workload.remaining_lengths()

        def ids(count: int) -> list[int]:
            # Distinct int objects, as a tokenizer returns: copying the list touches memory as it does there.
            return rng.integers(10, VOCABULARY, count).tolist()  # type: ignore[no-any-return]

        self.all_requests = [
            self.make_request(
                f"r{i}",
                ids(length),
                ids(workload.generated),
                workload.generated + remaining[i] if remaining else 1 << 30,
            )
            for i, length in enumerate(lengths)
        ]
        n = len(self.all_requests)
        self.req_to_token = torch.zeros(
            (n, workload.max_prompt + workload.generated + 4096), dtype=torch.int32, device=device
        )
        self.future_ids = torch.zeros(5 * n + 1, dtype=self.token_dtype, device=device)
        self.future_limit = 3 * n
        self._open_socket()
        self.rewind()

    def rewind(self) -> None:
        """Back to the workload's lengths, so that every block of a measurement is the same work.

        Raises MicrobenchError when the detokenizer process has died.
        """
        if self._sink.poll() is not None:
            raise MicrobenchError(f"the detokenizer process ended with code {self._sink.returncode}")
        workload, device = self.workload, self.device
        n = len(self.all_requests)
        for request in self.all_requests:
            request.rewind(workload.generated)
        self.free_slots = torch.arange(1, n * 4096 + 1, dtype=torch.int32)
        self.free_group: list[Any] = []
        self.future_count = self.in_flight = 0
        self.batch = RequestBatch(list(self.all_requests), self)
        self.batch.rows = torch.arange(n, dtype=torch.int32, device=device)
        lengths = [len(r.prompt_ids) + len(r.output_ids) for r in self.all_requests]
        self.batch.seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
        last = [r.output_ids[-1] if r.output_ids else r.prompt_ids[-1] for r in self.all_requests]
        self.next_input: Any = torch.tensor(last, dtype=self.token_dtype, device=device)

    # -- what the engine files fill in -----------------------------------------------------------------------

    def make_request(self, rid: str, prompt: list[int], output: list[int], max_tokens: int) -> Any:
        raise TypeError("an engine file makes the requests")

    def process(self, batch: RequestBatch, tokens: Sequence[int]) -> None:
        raise TypeError("an engine file processes results")

    def stream(self, batch: RequestBatch) -> None:
        raise TypeError("an engine file streams outputs")

    # -- scheduling ------------------------------------------------------------------------------------------

    def schedule(self) -> RequestBatch | None:
        batch = self.batch
        keep = self.unfinished(batch.reqs)
        if not keep:
            return None
        if len(keep) < len(batch.reqs):
            self._filter(batch, keep)
        self._move_on(batch)
        return self.worker_batch(batch)

    def advance(self) -> RequestBatch:
        """The next step of the same requests without a look at them."""
        self._move_on(self.batch)
        taken = RequestBatch(self.batch.reqs, self)
        taken.input_ids, taken.seq_lens, taken.slots = self.batch.input_ids, self.batch.seq_lens, self.batch.slots
        return taken

    def unfinished(self, reqs: list[Any]) -> list[int]:
        """Which of the batch's requests get another step."""
        return [i for i in range(len(reqs)) if not reqs[i].finished()]

    def _move_on(self, batch: RequestBatch) -> None:
        """Allocate a KV slot a request and make the last step's outputs the inputs."""
        n = len(batch.reqs)
        slots = self.free_slots[:n].to(self.device, non_blocking=True)
        if len(slots) < n:
            raise RuntimeError("the run used up its KV slots; measure fewer steps")
        self.free_slots = self.free_slots[n:]
        batch.slots = slots
        batch.input_ids, self.next_input = self.next_input, None
        self.req_to_token[batch.rows, batch.seq_lens] = slots
        if self.overlap:
            batch.seq_lens = batch.seq_lens + 1  # the last batch may still read the old one
        else:
            batch.seq_lens.add_(1)
        self.in_flight += 1

    def worker_batch(self, batch: RequestBatch) -> RequestBatch:
        """What the model gets; engines that copy per-request fields for it do so here."""
        return batch

    def snapshot(self, batch: RequestBatch) -> RequestBatch:
        taken = RequestBatch(batch.reqs, self)
        taken.slots = batch.slots
        return taken

    def outputs(self, batch: RequestBatch, ids: Any) -> None:
        self.next_input = ids

    def _filter(self, batch: RequestBatch, keep: list[int]) -> None:
        batch.reqs = [batch.reqs[i] for i in keep]
        indices = torch.tensor(keep, dtype=torch.int64).to(self.device, non_blocking=True)
        batch.rows = batch.rows[indices]
        batch.seq_lens = batch.seq_lens[indices]
        self.next_input = self.next_input[indices]

    # -- future token ids ------------------------------------------------------------------------------------

    def futures(self, batch: RequestBatch) -> Any:
        base, n = self.future_count, len(batch.reqs)
        batch.future_base = base
        self.future_count = (base + n) % self.future_limit
        return torch.arange(-(base + 1), -(base + 1 + n), -1, dtype=self.token_dtype, device=self.device)

    def resolve(self, batch: RequestBatch) -> None:
        ids = batch.input_ids
        ids[:] = torch.where(ids < 0, self.future_ids[torch.clamp(-ids, min=0)], ids)

    def publish(self, batch: RequestBatch, ids: Any) -> None:
        self.future_ids[batch.future_base + 1 : batch.future_base + 1 + len(ids)] = ids

    # -- KV slots and the socket -----------------------------------------------------------------------------

    def free_slot(self, batch: RequestBatch, i: int) -> None:
        self.free_group.append(batch.slots[i : i + 1])

    def processed(self, batch: RequestBatch) -> None:
        """The last thing `process` does: one step less in flight, and the slots it freed can be used again."""
        self.tokens_out += len(batch.reqs)
        self.in_flight -= 1
        if self.free_group:
            self.free_slots = torch.cat((self.free_slots, torch.cat(self.free_group).cpu()))
            self.free_group = []

    def receive(self) -> None:
        """Look for new requests without waiting, as an engine does before every step; here none ever come."""
        with suppress(self._nothing_there):
            self._inbox.recv(self._no_wait)

    def send(self, message: Any) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self.sent_bytes += len(data)
        self._socket.send(data)

    def _open_socket(self) -> None:
        import zmq

        self._folder = tempfile.TemporaryDirectory(prefix="microbench-")
        address = f"ipc://{self._folder.name}/detokenizer"
        if len(address) > LONGEST_ADDRESS:
            raise UsageError(f"the temporary folder {self._folder.name} is too long for a socket; set TMPDIR shorter")
        self._nothing_there, self._no_wait = zmq.Again, zmq.NOBLOCK
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.bind(f"ipc://{self._folder.name}/requests")
        self._sink = subprocess.Popen(
            [sys.executable, "-S", "-c", _SINK, address, os.pathsep.join(sys.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us; closing ends it
        )
        assert self._sink.stdout is not None
        started = select.select([self._sink.stdout], [], [], START_S)[0] and self._sink.stdout.read(1)
        self._sink.stdout.close()
        if not started:
            self.close()
            raise MicrobenchError(f"the detokenizer process did not start within {START_S} s")

    def close(self) -> None:
        """End the detokenizer process and free the socket."""
        self._sink.kill()
        self._sink.wait()
        self._context.destroy(linger=0)
        self._folder.cleanup()


_SINK = """
import os, sys
sys.path[:] = sys.argv[2].split(os.pathsep)
import zmq
socket = zmq.Context().socket(zmq.PULL)
socket.connect(sys.argv[1])
print(end=".", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    if socket.poll(1000):
        socket.recv()
"""

"""Runs a function on several ranks of this machine, forked from this process, and gives back what each made."""

from __future__ import annotations

import datetime
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed


class RanksFailed(RuntimeError):
    """A rank raised; the message has each one's traceback."""


def on_ranks(count: int, function: Callable[..., Any], *args: Any, timeout: float = 120.0) -> list[Any]:
    """What `function(*args)` returns on each of `count` gloo ranks, in their order. Tensors come back as numpy would
    send them: return plain ones, detached. Raises RanksFailed where a rank raises or the time is over."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        queue = context.Queue()
        workers = [
            context.Process(
                target=_rank, args=(rank, count, store, folder, queue, function, args, timeout), daemon=True
            )
            for rank in range(count)
        ]
        for worker in workers:
            worker.start()
        failed: dict[int, str] = {}
        done: set[int] = set()
        try:
            while len(done) < count:
                rank, error = queue.get(timeout=timeout)
                done.add(rank)
                if error:
                    failed[rank] = error
                    if len(failed) == 1:
                        timeout = min(timeout, 15.0)  # the others fail too, or wait for this one
        except Exception as error:
            if not failed:
                raise RanksFailed(f"ranks {sorted(set(range(count)) - done)} are not done in {timeout} s") from error
        finally:
            for worker in workers:
                worker.join(timeout=5 if not failed else 0.5)
                if worker.is_alive():
                    worker.kill()
        if failed:
            raise RanksFailed("\n".join(f"rank {rank}:\n{text}" for rank, text in sorted(failed.items())))
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(count)]


def _rank(
    rank: int, count: int, store: str, folder: str, queue: Any, function: Any, args: Any, timeout: float
) -> None:  # fmt: skip
    error = ""
    try:
        torch.set_num_threads(1)
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=count,
            timeout=datetime.timedelta(seconds=timeout),
        )
        torch.save(function(*args), Path(folder) / f"{rank}.pt")
    except BaseException:
        error = traceback.format_exc()
    queue.put((rank, error))
    queue.close()
    queue.join_thread()
    if not error:
        distributed.destroy_process_group()

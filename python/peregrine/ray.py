"""Corpora on many machines, with Ray.

A plan of :mod:`peregrine.corpus` is carried out by a pool of actors. Each has a model and as many threads as it was given CPUs; only
names of partitions travel, so every node must see the input's and the output's folder under the same path. An actor that dies is replaced,
and its partition done again; calling :func:`run` once more does what is not there yet.

>>> import ray  # doctest: +SKIP
>>> from peregrine import corpus
>>> import peregrine.ray
>>> plan = corpus.Plan("crawl/", "crawl-pt/", column="body", model="opus-mt-en-pt")  # doctest: +SKIP
>>> peregrine.ray.run(plan, num_cpus=8, address="auto", tell=corpus.show)  # doctest: +SKIP
<Report: 100 partitions done, 0 there before, 0 failed; 200000 lines, 4213 lines/s>
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import itertools
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, Union

from ._options import StrPath
from ._peregrine import Error
from ._settings import map_paths
from .corpus._plan import Plan
from .corpus._run import Died, Report, Tell, carry_out
from .corpus._worker import About, Job, Outcome, Partition, Worker

#: Seconds after which people are told that the cluster has no room for a worker.
_PATIENCE = 30.0


def run(
    plan: Plan,
    *,
    workers: int | None = None,
    num_cpus: int | None = None,
    num_gpus: float = 0,
    ship_model: bool = False,
    address: str | None = None,
    tell: Tell | None = None,
    max_failures: int = 100,
) -> Report:
    """Carries out a plan on a cluster of Ray.

    num_cpus and num_gpus are what Ray reserves for a worker, and num_cpus its threads; without GPUs the default is all CPUs of a node, so
    that a node has one worker, and with them one CPU for each of the four threads that feed a GPU. workers is their number; by default
    as many as the cluster has room for now. address is that of a cluster, such as ``"auto"``; without one, the one that this process is
    connected to, or a new one on this machine.

    With ship_model the model's files, and other files that settings and options name, go to the nodes through Ray's object store, once each,
    and are kept in a folder for temporary files. Otherwise each node opens them by their paths.

    tell is called after each partition, and when a worker has died. After max_failures failed partitions the run ends.
    """
    ray = _ray()
    if not ray.is_initialized():
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error")
    elif address is not None:
        raise ValueError("address: this process is connected to a cluster already")
    return carry_out(plan, Actors(plan.job, workers, num_cpus, num_gpus, ship_model), tell, max_failures)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise Error("there is no package ray: pip install ray") from None


class Actors:
    """Actors of Ray, one partition at a time each."""

    def __init__(self, job: Job, workers: int | None, num_cpus: int | None, num_gpus: float, ship_model: bool) -> None:
        self.ray = ray = _ray()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if num_gpus and not workers:
            workers = int(sum(node.get("GPU", 0) // num_gpus for node in nodes))
            if not workers:
                raise Error(f"no node of the cluster has {num_gpus:g} GPUs")
        if num_cpus is None:
            cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
            num_cpus = 4 if num_gpus else min(cpus, default=1)
        self.workers = workers or max(1, int(sum(node.get("CPU", 0) // num_cpus for node in nodes)))
        # What a dead actor was doing is done again by another one, which is started here: Ray would try for ever.
        self.kind = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0, max_task_retries=0)(_Actor)
        self.job = job
        self.parcels = {path: ray.put(_pack(path)) for path in _paths(job)} if ship_model else {}
        self.on_gpu = num_gpus > 0
        self.numbers = itertools.count(1)
        self.actors: dict[int, Any] = {}
        self.under_way: dict[Any, int] = {}
        self.since: float | None = time.monotonic()

    def size(self, about: About | None) -> int:
        """What was asked for, or what the cluster has room for."""
        return self.workers

    def start(self) -> int:
        """Starts an actor; Ray finds a place for it."""
        number = next(self.numbers)
        self.actors[number] = self.kind.remote(self.job, self.parcels, self.on_gpu)
        self.under_way[self.actors[number].about.remote()] = number
        return number

    def give(self, worker: int, partition: Partition) -> None:
        """Calls an actor."""
        self.under_way[self.actors[worker].translate.remote(partition)] = worker

    def wait(self) -> Iterator[tuple[int, Union[About, Outcome, Died]]]:
        """The answers that have come."""
        errors = self.ray.exceptions
        ready, _ = self.ray.wait(list(self.under_way), num_returns=1, timeout=1.0)
        if ready:
            self.since = None
        elif self.since is not None and time.monotonic() - self.since > _PATIENCE:
            self.since = None
            print("peregrine: no worker has begun yet: does the cluster have room for one?", file=sys.stderr, flush=True)
        for reference in ready:
            worker = self.under_way.pop(reference)
            what: Union[About, Outcome, Died]
            try:
                what = self.ray.get(reference)
            except errors.RayTaskError as error:
                # An error of our own; the actor is not to be trusted any more.
                what = Died(f"failed: {error.cause}")
            except errors.RayError as error:
                what = Died(f"died: {(str(error).strip().splitlines() or [type(error).__name__])[0]}")
            if isinstance(what, Died):
                self._end(self.actors.pop(worker))
            yield worker, what

    def _end(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            self.ray.kill(actor)

    def close(self) -> None:
        """Kills all actors: whatever they have not renamed yet is not there."""
        for actor in self.actors.values():
            self._end(actor)
        self.actors.clear()


class _Actor:
    """A worker in an actor."""

    def __init__(self, job: Job, parcels: Mapping[str, Any], on_gpu: bool) -> None:
        ray = _ray()
        # The files that were sent, where this node has them.
        here = {path: _unpack(ray.get(parcel), path) for path, parcel in parcels.items()}
        settings, options = map_paths(job.settings, job.options, lambda path: here.get(os.fspath(path), os.fspath(path)))
        if not on_gpu and settings.get("device", "auto") == "auto":
            # Ray has given no GPU, whatever the node has.
            settings["device"] = "cpu"
        given = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        self.worker = Worker(job._replace(settings=settings, options=options), max(1, int(given)))

    def about(self) -> About:
        return self.worker.about()

    def translate(self, partition: Partition) -> Outcome:
        return self.worker.translate(partition)


def _paths(job: Job) -> list[str]:
    """All files and folders that a job names."""
    found: list[str] = []

    def note(path: StrPath) -> str:
        found.append(os.fspath(path))
        return found[-1]

    map_paths(job.settings, job.options, note)
    if job.settings.get("config") is not None:
        raise Error(f"{job.settings['config']}: a configuration names other files, which cannot be sent")
    return found


def _pack(path: str) -> bytes:
    """A file or folder as the bytes of an archive."""
    packed = io.BytesIO()
    try:
        with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
            archive.add(path, os.path.basename(path), filter=_timeless)
    except OSError as error:
        raise Error(f"{error.filename or path}: {error.strerror}") from None
    return packed.getvalue()


def _timeless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what is not content, so that the same files are the same archive."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(archive: bytes, path: str) -> str:
    """Where a file or folder is on this node. Workers that come later, and other runs, find it there."""
    root = Path(tempfile.gettempdir(), f"peregrine-models-{os.getuid()}")
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise Error(f"{root}: belongs to another user")
    folder = root / hashlib.sha256(archive).hexdigest()
    if not folder.exists():
        beside = Path(tempfile.mkdtemp(dir=root, prefix="."))
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            packed.extractall(beside, **safe)
        try:
            os.rename(beside, folder)
        except OSError:
            # Another worker was faster: there is its folder.
            shutil.rmtree(beside, ignore_errors=True)
    return str(folder / os.path.basename(path))

"""Runs of a corpus: exactly once, whatever is stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import peregrine
import pytest
from conftest import MODEL, SENTENCE, different
from corpora import RECORD, contents, make, run
from peregrine import corpus
from peregrine.corpus import _plan, _run, _worker


def test_a_second_run_does_what_is_not_there(local, tmp_path):
    source = make(tmp_path / "in", {f"{i}.txt": f"{line}\n" for i, line in enumerate(different(6))})
    plan, out = corpus.Plan(source, tmp_path / "out"), tmp_path / "out"
    local(plan)
    first = contents(out)
    (out / "3.txt").unlink()
    (out / "2.txt").write_text("as it is")
    (out / ".5.txt.host-1.part").write_text("half of")
    report = local(plan)
    assert (report.done, report.skipped, report.lines) == (1, 5, 1)
    assert contents(out) == {**first, "2.txt": b"as it is"}
    # A partition more is done; the others stay.
    make(source, {"6.txt": f"{SENTENCE}\n"})
    assert local(corpus.Plan(source, out)).done == 1 and local(corpus.Plan(source, out)).done == 0


def test_another_plan_is_refused(local, tmp_path):
    source, out = make(tmp_path / "in", {"a.txt": "Good morning!\n", "b.txt": "Good evening!\n"}), tmp_path / "out"
    first = {"options": {"beam": 2}, "model": MODEL}
    local(corpus.Plan(source, out, **first))
    before = contents(out)

    def refused(what, **given):
        with pytest.raises(peregrine.Error, match=what) as error:
            local(corpus.Plan(source, out, **{**first, **given}))
        assert "\n" not in str(error.value) and RECORD in str(error.value)

    refused("begun with option beam 2, now 1", options={"beam": 1})
    refused("begun with option beam 2, now the default", options={})
    refused("begun with setting model .*, now the default", model=None)
    refused("begun with dedupe false, now true", dedupe=True)
    refused('begun with into "translation", now "pt"', into="pt")
    (out / "a.txt").unlink()
    refused("begun with int8 on a CPU, and a worker has float32 on a CPU", precision="float32")
    (out / "a.txt").write_bytes(before["a.txt"])
    # A copy of the model is the same model, and what changes no word is allowed.
    copy = tmp_path / "copy.peregrine"
    copy.write_bytes(MODEL.read_bytes())
    assert local(corpus.Plan(source, out, **{**first, "model": copy, "batch_sentences": 3})).skipped == 2
    make(source, {"a.txt": "Good morning, good morning!\n"})
    refused("a.txt: has changed since")
    (source / "a.txt").unlink()
    refused("begun with .*a.txt, which is not among the input any more")
    assert contents(out) == before


def test_a_folder_of_others_is_left_alone(local, tmp_path):
    source = make(tmp_path / "in", {"a.txt": "Good morning!\n"})
    out = make(tmp_path / "out", {"a.txt": "precious"})
    with pytest.raises(peregrine.Error, match="a.txt: is there, and no _peregrine.json says how"):
        local(corpus.Plan(source, out))
    assert (out / "a.txt").read_text() == "precious"
    for wrong in (source, source / "out"):
        with pytest.raises(peregrine.Error, match="the output would be among the input"):
            corpus.Plan(source, wrong)
    (tmp_path / "empty").mkdir()
    with pytest.raises(peregrine.Error, match="empty: there are no files to translate"):
        corpus.Plan(tmp_path / "empty", out)
    with pytest.raises(peregrine.Error, match="nothing: No such file"):
        corpus.Plan(tmp_path / "nothing", out)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / RECORD).write_text("[")
    with pytest.raises(peregrine.Error, match="_peregrine.json: cannot be read"):
        local(corpus.Plan(source, tmp_path / "bad"))


def test_one_run_at_a_time_writes_to_a_folder(local, tmp_path):
    pytest.importorskip("fcntl")
    plan = corpus.Plan(make(tmp_path / "in", {"a.txt": "Good morning!\n"}), tmp_path / "out")
    folder = _plan.Folder(plan)
    with pytest.raises(peregrine.Error, match="another run is writing to this folder"):
        local(plan)
    folder.close()
    assert local(plan).done == 1


def test_what_is_wrong_with_all_partitions_is_told_once(local, tmp_path):
    source = make(tmp_path / "in", {"a.txt": "Good morning!\n"})
    for wrong, what in (({"options": {"beam": 0}}, "beam"), ({"options": {"beams": 3}}, "beams"), ({"precision": "int3"}, "precision")):
        with pytest.raises(peregrine.Error, match=what):
            local(corpus.Plan(source, tmp_path / "out", **wrong))
    with pytest.raises(peregrine.Error, match="no-such-model: No such file"):
        local(corpus.Plan(source, tmp_path / "out", model=tmp_path / "no-such-model"))
    assert contents(tmp_path / "out") == {} and not (tmp_path / "out" / RECORD).exists()
    with pytest.raises(TypeError, match="no setting 'threads'"):
        corpus.Plan(source, tmp_path / "out", threads=3)
    with pytest.raises(TypeError, match="must be text, numbers, lists and dictionaries"):
        corpus.Plan(source, tmp_path / "out", options={"glossary": peregrine.Glossary({"a": "b"})})
    with pytest.raises(ValueError, match="format: expected text, jsonl or parquet"):
        corpus.Plan(source, tmp_path / "out", format="csv")
    with pytest.raises(ValueError, match="workers: expected a number from 1 on"):
        corpus.run(corpus.Plan(source, tmp_path / "out"), workers=0)


# Workers that die. First the scheduler by itself, with workers that are none.


class Imagined:
    """A pool whose workers do as a script says: each partition has the ways in which it ends, one after the other."""

    def __init__(self, size, script, die_early=0):
        self.count, self.script, self.die_early = size, script, die_early
        self.events, self.number, self.given, self.alive = [], 0, [], set()

    def size(self, about):
        return self.count

    def start(self):
        self.number += 1
        if self.die_early:
            self.die_early -= 1
            self.events.append((self.number, _run.Died("was killed")))
        else:
            self.alive.add(self.number)
            self.events.append((self.number, _worker.About(None, "int8 on a CPU", False, 1, 1)))
        return self.number

    def give(self, worker, partition):
        assert worker in self.alive and worker not in [w for w, _ in self.events]
        self.given.append(partition.name)
        ending = self.script.get(partition.name, []).pop(0) if self.script.get(partition.name) else "done"
        if ending == "die":
            self.alive.discard(worker)
            self.events.append((worker, _run.Died("was killed by SIGKILL")))
        else:
            Path(partition.target).write_text("x")
            self.events.append((worker, _worker.Outcome(partition.name, None, 1, 1, 0.1, 5, worker)))

    def wait(self):
        events, self.events = self.events, []
        return events

    def close(self):
        self.alive.clear()


def imagined(tmp_path, count, size, script, **more):
    source = make(tmp_path / "in", {f"{i}.txt": "a\n" * (i + 1) for i in range(count)})
    pool = Imagined(size, script, **more)
    return _run.carry_out(corpus.Plan(source, tmp_path / "out"), pool), pool


def test_a_dead_workers_partition_is_done_again(tmp_path):
    report, pool = imagined(tmp_path, 9, 3, {"4.txt": ["die"], "7.txt": ["die", "die"]})
    assert (report.done, report.died, report.failures) == (9, 3, [])
    assert pool.given.count("7.txt") == 3 and len(pool.given) == 12
    assert pool.given[:3] == ["8.txt", "7.txt", "6.txt"], "the largest first"


def test_a_partition_that_kills_its_workers_is_given_up(tmp_path):
    report, pool = imagined(tmp_path, 5, 2, {"2.txt": ["die"] * 9})
    assert report.done == 4 and pool.given.count("2.txt") == 3
    (failure,) = report.failures
    assert failure.error.endswith("2.txt: a worker was killed by SIGKILL, 3 times")


def test_workers_that_never_get_ready_end_the_run(tmp_path):
    report, _ = imagined(tmp_path, 3, 2, {}, die_early=2)
    assert report.done == 3
    with pytest.raises(peregrine.Error, match="a worker was killed before its model was open, 3 times"):
        imagined(tmp_path / "other", 3, 1, {}, die_early=3)


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        found += [int(number) for number in task.read_text().split()]
    return found


def started(source, out, *more):
    command = [sys.executable, "-m", "peregrine", "corpus", str(source), str(out), "--json", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")


def large(tmp_path):
    """A corpus that takes some seconds, and what must become of it."""
    texts = different(1200)
    source = make(tmp_path / "in", {f"{i}.txt": "\n".join(texts[i * 100 : i * 100 + 100]) + "\n" for i in range(12)})
    with peregrine.Translator() as translator:
        done = translator.translate(texts)
    return source, {f"{i}.txt": ("\n".join(done[i * 100 : i * 100 + 100]) + "\n").encode() for i in range(12)}


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc")
def test_killed_workers_are_replaced(tmp_path):
    source, expected = large(tmp_path)
    process, killed = started(source, tmp_path / "out", "--workers", "2", "--threads", "1"), 0
    events = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "partition" and killed < 2:
            victims = children(process.pid)
            os.kill(victims[killed % len(victims)], signal.SIGKILL)
            killed += 1
    assert process.wait(30) == 0, process.stderr.read()
    assert [event["how"] for event in events if event["event"] == "worker died"] == ["was killed by SIGKILL"] * 2
    assert events[-1]["done"] == 12 and events[-1]["died"] == 2
    assert contents(tmp_path / "out") == expected


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_is_gone_on_with(tmp_path, how):
    source, expected = large(tmp_path)
    process = started(source, tmp_path / "out", "--workers", "2", "--threads", "1")
    for _ in range(3):
        process.stdout.readline()
    workers = children(process.pid)
    process.send_signal(how)
    code = process.wait(30)
    errors = process.stderr.read()
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[how], errors
    for worker in workers:
        for _ in range(100):
            if not os.path.exists(f"/proc/{worker}"):
                break
            time.sleep(0.05)
        else:
            raise AssertionError("a worker lives on")
    there = contents(tmp_path / "out")
    whole = {name: content for name, content in there.items() if not name.startswith(".")}
    assert 3 <= len(whole) < 12 and all(expected[name] == content for name, content in whole.items())
    if how != signal.SIGKILL:
        assert whole == there and errors.count("\n") <= 2 and "goes on with" in errors
    done = run(source, tmp_path / "out", "--workers", 2, "--threads", 1)
    assert done.returncode == 0 and f"{len(whole)} were there" in done.stderr
    assert contents(tmp_path / "out") == expected

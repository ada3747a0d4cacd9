"""Corpora of many files: formats, exactly once, failures, workers that die, the command."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import peregrine
import pytest
from conftest import MODEL, SENTENCE, TRANSLATION, different
from peregrine import corpus
from peregrine.corpus import _files, _plan, _run, _worker
from peregrine.corpus._command import option_table

RECORD = "_peregrine.json"


def make(folder: Path, files: dict[str, str]) -> Path:
    """A folder with files of these names and contents."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return folder


def json_lines(rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def run(*arguments, **more):
    command = [sys.executable, "-m", "peregrine", "corpus", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, **more)


def contents(folder: Path) -> dict[str, bytes]:
    """All files but those that are about the others."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("_")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def local():
    """Carries out a plan with one worker."""
    return lambda plan, **more: corpus.run(plan, workers=1, threads=2, **more)


# Formats.


def test_text_becomes_text_as_the_command_gives_it(local, tmp_path):
    lines = [*different(50), "", "  Indented text", "A. B. C.\r", "Visit https://example.com 🦀!", "the last one"]
    source = make(tmp_path / "in", {"a.txt": "\n".join(lines), "deep/er/b.en": SENTENCE, "c.txt.gz": f"{SENTENCE}\n", "empty": ""})
    make(source, {"_SUCCESS": "", ".hidden": "x", "_temporary/x.txt": "x"})
    report = local(corpus.Plan(source, tmp_path / "out"))
    assert (report.done, report.skipped, report.lines, report.failures) == (4, 0, len(lines) + 2, [])
    written = contents(tmp_path / "out")
    assert set(written) == {"a.txt", "deep/er/b.en", "c.txt.gz", "empty"}
    command = [sys.executable, "-m", "peregrine", "translate", "-q", "-i", str(source / "a.txt")]
    assert written["a.txt"] == subprocess.run(command, capture_output=True, check=True).stdout
    assert written["deep/er/b.en"].decode() == f"{TRANSLATION}\n" and written["empty"] == b""
    assert gzip.decompress(written["c.txt.gz"]).decode() == f"{TRANSLATION}\n"


def test_bytes_that_are_no_text_are_as_the_command_has_them(local, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Two dogs \xff\xfe play \xe2\x82 here.\nGood morning!\r\n\xc3\n")
    local(corpus.Plan(tmp_path / "a.txt", tmp_path / "out"))
    command = [sys.executable, "-m", "peregrine", "translate", "-q", "-i", str(tmp_path / "a.txt")]
    assert (tmp_path / "out/a.txt").read_bytes() == subprocess.run(command, capture_output=True, check=True).stdout


def test_json_lines_keep_their_columns(translator, local, tmp_path):
    texts = different(30)
    rows = [{"id": 10**18 + i, "x": [1.10, None, {"é": "\u2028"}], "text": text} for i, text in enumerate(texts)]
    rows[3]["text"] = None
    rows[4]["half"] = "\ud800"
    make(tmp_path / "in", {"a.jsonl": json_lines(rows[:4]) + json.dumps(rows[4]) + "\n\n" + json_lines(rows[5:])})
    assert local(corpus.Plan(tmp_path / "in", tmp_path / "out")).lines == 30
    done = [json.loads(line) for line in (tmp_path / "out/a.jsonl").read_bytes().splitlines()]
    expected = translator.translate(texts)
    expected[3] = None
    assert done == [{**row, "translation": text} for row, text in zip(rows, expected)]
    assert list(done[0]) == ["id", "x", "text", "translation"]
    plan = corpus.Plan(tmp_path / "in", tmp_path / "out2", keep=["id"], into="pt", options={"beam": 2})
    local(plan)
    done = [json.loads(line) for line in (tmp_path / "out2/a.jsonl").read_bytes().splitlines()]
    texts[3] = ""
    assert done[5] == {"id": 10**18 + 5, "pt": translator.translate(texts[5], beam=2)}


def test_parquet_keeps_its_columns_to_the_bit(translator, local, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [*different(4500), None]
    table = arrow.table(
        {
            "id": arrow.array(range(4501), arrow.uint64()),
            "body": arrow.array(texts).dictionary_encode(),
            "when": arrow.array([10**15 + i for i in range(4501)], arrow.timestamp("ns")),
            "more": arrow.array([{"a": [i]} for i in range(4501)]),
        }
    ).replace_schema_metadata({"made": "here"})
    (tmp_path / "in/lang=en").mkdir(parents=True)
    parquet.write_table(table, tmp_path / "in/lang=en/part-0.parquet", row_group_size=3000)
    parquet.write_table(table.slice(0, 0), tmp_path / "in/none.parquet")
    plan = corpus.Plan(tmp_path / "in", tmp_path / "out", column="body")
    assert local(plan).lines == 4501
    read = parquet.ParquetFile(tmp_path / "out/lang=en/part-0.parquet").read()
    assert read.drop_columns("translation").cast(table.schema).equals(table)
    assert read.schema.metadata[b"made"] == b"here"
    assert read["translation"].to_pylist() == [*translator.translate(texts[:-1]), None]
    empty = parquet.ParquetFile(tmp_path / "out/none.parquet").read()
    assert empty.num_rows == 0 and empty.schema.names == ["id", "body", "when", "more", "translation"]
    local(corpus.Plan(tmp_path / "in", tmp_path / "some", column="body", keep=["when", "id"]))
    some = parquet.ParquetFile(tmp_path / "some/lang=en/part-0.parquet").read()
    assert some.schema.names == ["when", "id", "translation"] and some["translation"] == read["translation"]


def test_one_format_becomes_another(translator, local, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = different(20)
    expected = translator.translate(texts)
    source = make(tmp_path / "in", {"a.txt.gz": "\n".join(texts), "b.jsonl": json_lines({"n": i, "text": t} for i, t in enumerate(texts))})
    local(corpus.Plan(source, tmp_path / "parquet", format="parquet"))
    assert set(contents(tmp_path / "parquet")) == {"a.parquet", "b.parquet"}
    a, b = (parquet.ParquetFile(tmp_path / "parquet" / name).read() for name in ("a.parquet", "b.parquet"))
    assert a.to_pydict() == {"line": list(range(1, 21)), "text": texts, "translation": expected}
    assert b.to_pydict() == {"n": list(range(20)), "text": texts, "translation": expected}
    local(corpus.Plan(tmp_path / "parquet/b.parquet", tmp_path / "json", format="jsonl", into="again"))
    rows = [json.loads(line) for line in (tmp_path / "json/b.jsonl").read_bytes().splitlines()]
    assert rows[7] == {"n": 7, "text": texts[7], "translation": expected[7], "again": expected[7]}
    with pytest.raises(peregrine.Error, match="b.jsonl: jsonl cannot become text"):
        corpus.Plan(source / "b.jsonl", tmp_path / "x", format="text")
    with pytest.raises(peregrine.Error, match="a.txt.*output would be a.parquet, as that of .*a.jsonl"):
        corpus.Plan(make(tmp_path / "two", {"a.txt": "", "a.jsonl": ""}), tmp_path / "x", format="parquet")
    with pytest.raises(peregrine.Error, match="a.txt.zst: cannot be read compressed"):
        corpus.Plan(make(tmp_path / "three", {"a.txt.zst": ""}), tmp_path / "x")


def test_lines_that_are_alike_are_translated_once(translator, local, tmp_path, monkeypatch):
    texts = ["Two dogs  play.", "Two dogs play. ", "Good morning!", " Two dogs play."]
    texts += ["Two cafe\u0301s.", "Two caf\u00e9s.", "two dogs play."]
    source = make(tmp_path / "in", {"a.jsonl": json_lines({"text": text} for text in [*texts, None, *texts])})
    report = local(corpus.Plan(source, tmp_path / "out", dedupe=True))
    assert (report.lines, report.translated) == (15, 4)
    done = [json.loads(line)["translation"] for line in (tmp_path / "out/a.jsonl").read_bytes().splitlines()]
    of = translator.translate
    once = [of(texts[0])] * 2 + [of(texts[2]), of(texts[0]), of(texts[4]), of(texts[4]), of(texts[6])]
    assert done == [*once, None, *once]
    # Where there are more different lines than are remembered, the rest is translated again and nothing else changes.
    monkeypatch.setattr(_worker, "_REMEMBERED", 3)
    plan, counts = corpus.Plan(source, tmp_path / "few", dedupe=True), _worker.Counts()
    _worker.translate_partition(translator, plan.job, source / "a.jsonl", tmp_path / "few.jsonl", counts)
    assert counts.lines == 15 and 4 < counts.translated < 14
    forgetful = [json.loads(line)["translation"] for line in (tmp_path / "few.jsonl").read_bytes().splitlines()]
    assert [t and t.split() for t in forgetful] == [t and t.split() for t in done]
    with pytest.raises(ValueError, match="dedupe"):
        corpus.Plan(source, tmp_path / "x", dedupe=True, options={"split": "paragraph"})


def test_a_long_partition_needs_no_more_memory_than_a_short_one(tmp_path):
    pytest.importorskip("resource")
    source = make(tmp_path / "in", {"long.txt": "Good morning!\n" * 400_000, "short.txt": "Good morning!\n"})
    memory = []
    for name in ("short.txt", "long.txt"):
        report = corpus.run(corpus.Plan(source / name, tmp_path / f"out-{name}", dedupe=True), workers=1, threads=1)
        memory.append(max(report.workers.values()) / 1e6)
    print(f"memory of a worker: {memory[0]:.0f} MB for 1 line, {memory[1]:.0f} MB for 400,000")
    assert memory[1] - memory[0] < 60


# Exactly once.


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


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with pytest.raises(RuntimeError):
        with _files.whole(path) as file:
            file.write(b"half")
            raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with _files.whole(path) as file:
        file.write(b"all")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"all"


# Failures.


def test_a_bad_partition_costs_no_other(tmp_path):
    good = json_lines({"id": i, "text": text} for i, text in enumerate(different(5)))
    files = {
        "good.jsonl": good,
        "json.jsonl": good + '{"text": \n',
        "column.jsonl": good + '{"txt": "a"}\n',
        "type.jsonl": good + '{"text": 3}\n',
        "list.jsonl": "[]\n",
        "taken.jsonl": '{"text": "a", "translation": "b"}\n',
        "good.txt": "Good morning!\n",
    }
    source = make(tmp_path / "in", files)
    (source / "cut.txt.gz").write_bytes(gzip.compress(b"Good morning!\n" * 10_000)[:-20])
    (source / "utf8.jsonl").write_bytes(good.encode() + b'{"text": "\xff"}\n')
    (source / "secret.txt").write_text("x")
    done = run(source, tmp_path / "out", "--workers", 2, "--threads", 1, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    told = {event["name"]: event["error"] for event in events if event["event"] == "partition"}
    assert done.returncode == 2 and events[-1]["failed"] == 7 and events[-1]["done"] == 3
    assert told["good.jsonl"] is told["good.txt"] is told["secret.txt"] is None
    assert f"{source}/json.jsonl, line 6: no JSON" in told["json.jsonl"]
    assert "column.jsonl, line 6: there is no column 'text', only 'txt'" in told["column.jsonl"]
    assert "type.jsonl, line 6: expected text in column 'text', not int" in told["type.jsonl"]
    assert "list.jsonl, line 1: expected an object, not list" in told["list.jsonl"]
    assert "taken.jsonl, line 1: there is a column 'translation' already" in told["taken.jsonl"]
    assert "cut.txt.gz, after line" in told["cut.txt.gz"] and "utf8.jsonl, line 6: not UTF-8" in told["utf8.jsonl"]
    assert set(contents(tmp_path / "out")) == {"good.jsonl", "good.txt", "secret.txt"}
    # Failed ones are tried again, and a run ends after too many.
    again = run(source, tmp_path / "out", "--max-failures", 2, "--workers", 1)
    assert again.returncode == 2 and again.stderr.count("peregrine: failed: ") == 2 and "2 FAILED" in again.stderr


def test_bad_parquet_files_say_so(tmp_path, local):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/no.parquet").write_bytes(b"PAR1 not really")
    parquet.write_table(arrow.table({"id": [1], "text": [3]}), tmp_path / "in/number.parquet")
    parquet.write_table(arrow.table({"id": [1], "txt": ["a"]}), tmp_path / "in/column.parquet")
    report = local(corpus.Plan(tmp_path / "in", tmp_path / "out"))
    told = {failure.name: failure.error for failure in report.failures}
    assert "no.parquet: " in told["no.parquet"]
    assert "number.parquet, row 1: expected text in column 'text', not int" in told["number.parquet"]
    assert "column.parquet: there is no column 'text', only 'id', 'txt'" in told["column.parquet"]


def test_errors_of_libraries_cost_one_partition(tmp_path):
    pytest.importorskip("pyarrow")
    rows = {"mixed.jsonl": [{"n": 1, "text": "a"}, {"n": "x", "text": "b"}], "good.jsonl": [{"n": 1, "text": "Good morning!"}]}
    source = make(tmp_path / "in", {name: json_lines(content) for name, content in rows.items()})
    done = run(source, tmp_path / "out", "--format", "parquet", "--workers", 1)
    assert done.returncode == 2 and "mixed.jsonl, line 1 and after: the columns differ" in done.stderr
    assert set(contents(tmp_path / "out")) == {"good.parquet"}
    done = run(source, tmp_path / "kept", "--format", "parquet", "--workers", 1, "--keep", "text")
    assert done.returncode == 0 and set(contents(tmp_path / "kept")) == {"good.parquet", "mixed.parquet"}


def test_a_text_that_cannot_be_translated_is_named(local, tmp_path):
    lines = [*different(40), "a word and " * 3000, *different(40)]
    plan = corpus.Plan(make(tmp_path / "in", {"a.txt": "\n".join(lines)}), tmp_path / "out", options={"refuse_long": True, "split": "none"})
    (failure,) = local(plan).failures
    assert "a.txt, row 41: " in failure.error and "too long" in failure.error


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


# The command.


def test_the_command_has_every_option(tmp_path):
    text = run("--help").stdout
    table = list(option_table())
    assert {option.name for option in table} == set(peregrine.Options.__annotations__)
    for option in table:
        assert f"--{option.name.rstrip('_').replace('_', '-')}" in text and option.help
    for word in ("--engine", "--column", "--format", "--threads", "--model", "--dedupe", "exit codes", "SOURCE... OUTPUT"):
        assert word in text
    top = subprocess.run([sys.executable, "-m", "peregrine", "--help"], capture_output=True, text=True)
    assert "peregrine corpus" in top.stdout and "Usage: peregrine" in top.stdout


def test_options_of_the_command_reach_the_translator(translator, tmp_path):
    lines = different(5) + ["Visit {name}."]
    source = make(tmp_path / "in", {"a.txt": "\n".join(lines)})
    make(tmp_path, {"terms.tsv": "dogs\tcachorros\n"})
    more = ["-b", 3, "--carry", "off", "--split", "none", "--glossary", tmp_path / "terms.tsv", "--guards=off", "--normalize", 0.5]
    done = run(source, tmp_path / "out", "-m", MODEL, "--threads", 1, *more)
    assert done.returncode == 0, done.stderr
    options = {"beam": 3, "carry": False, "split": "none", "guards": False, "normalize": 0.5, "glossary": tmp_path / "terms.tsv"}
    assert (tmp_path / "out/a.txt").read_text(encoding="utf-8").splitlines() == translator.translate(lines, **options)
    assert "cachorros" in (tmp_path / "out/a.txt").read_text(encoding="utf-8")


def test_wrong_arguments_are_one_line(tmp_path):
    source = make(tmp_path / "in", {"a.txt": "Good morning!\n"})
    for wrong, what in (
        ((tmp_path / "none", tmp_path / "out"), "none: No such file"),
        ((source, tmp_path / "out", "-m", "/no/model"), "/no/model: No such file"),
        ((source, tmp_path / "out", "--beam", 0), "beam"),
        ((source, tmp_path / "out", "--num-cpus", 2), "--num-cpus: is for --engine ray"),
        ((source, tmp_path / "out", "--engine", "ray", "--threads", 2), "--threads: with --engine ray"),
    ):
        done = run(*wrong)
        assert done.returncode == 2 and what in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert "--carry: expected on or off" in run(source, tmp_path / "out", "--carry", "maybe").stderr


def test_quiet_is_quiet(tmp_path):
    source = make(tmp_path / "in", {"a.txt": "Good morning!\n"})
    done = run(source, tmp_path / "out", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_examples_in_docstrings_run():
    import doctest

    from peregrine.corpus import _command, _show

    for module in (corpus, _plan, _files, _worker, _command, _show):
        outcome = doctest.testmod(module)
        assert outcome.failed == 0, module.__name__

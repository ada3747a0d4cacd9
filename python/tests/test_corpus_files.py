"""Files of a corpus: text, JSON lines and Parquet, one into the other, and what cannot be read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import peregrine
import pytest
from conftest import SENTENCE, TRANSLATION, different
from corpora import contents, json_lines, make, run
from peregrine import corpus
from peregrine.corpus import _files, _worker


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

"""Corpora on Ray and on Spark, as far as they are installed. The large case is tests/scale/run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import peregrine
import pytest
from conftest import MODEL, different
from peregrine import corpus

EXAMPLE = Path(__file__).parents[1] / "examples" / "spark_corpus.py"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Twelve Parquet files with ids."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("source")
    texts = different(600)
    for number in range(12):
        ids = list(range(number * 50, number * 50 + 50))
        table = arrow.table({"id": ids, "text": [texts[i] for i in ids]})
        parquet.write_table(table, folder / f"part-{number:02}.parquet")
    return folder


@pytest.fixture(scope="module")
def expected(source, tmp_path_factory):
    """The files that one process makes."""
    out = tmp_path_factory.mktemp("expected")
    corpus.run(corpus.Plan(source, out), workers=1, threads=1)
    return contents(out)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", object_store_memory=100 << 20)
    yield ray
    ray.shutdown()


def test_ray_gives_what_one_process_gives(ray, source, expected, tmp_path):
    import peregrine.ray

    report = peregrine.ray.run(corpus.Plan(source, tmp_path / "out"), num_cpus=1)
    assert (report.done, report.lines, report.failures, report.died) == (12, 600, [], 0)
    assert len(report.workers) == 2 and contents(tmp_path / "out") == expected


def test_ray_replaces_killed_actors_and_goes_on(ray, source, expected, tmp_path):
    import peregrine.ray

    class Stop(Exception):
        pass

    def kill_and_stop(report, what):
        # The second of these kills leaves no worker.
        if isinstance(what, corpus.Outcome) and report.done in (1, 3):
            os.kill(what.process, signal.SIGKILL)
        if report.died == 2 and report.done >= 6:
            raise Stop

    plan = corpus.Plan(source, tmp_path / "out")
    with pytest.raises(Stop):
        peregrine.ray.run(plan, num_cpus=1, tell=kill_and_stop)
    there = contents(tmp_path / "out")
    assert 6 <= len(there) < 12 and all(expected[name] == content for name, content in there.items())
    assert not list((tmp_path / "out").glob(".*.part"))
    deaths = []
    report = peregrine.ray.run(plan, num_cpus=1, tell=lambda _, what: deaths.append(what) if isinstance(what, corpus.Died) else None)
    assert report.skipped == len(there) and report.done == 12 - len(there) and not deaths
    assert contents(tmp_path / "out") == expected


def test_ray_takes_threads_and_model_as_it_is_told(ray, source, tmp_path):
    import peregrine.ray

    # A model that only the driver can see: it goes through the object store.
    model = tmp_path / "mine" / "en-pt.peregrine"
    model.parent.mkdir()
    shutil.copy(MODEL, model)
    plan = corpus.Plan(source, tmp_path / "out", model=model)
    pool = peregrine.ray.Actors(plan.job, 1, 2, 0, True)
    model.unlink()
    pool.start()
    about = next(what for _ in range(60) for _, what in pool.wait())
    assert about.error is None and about.threads == 2
    pool.close()
    with pytest.raises(peregrine.Error, match="en-pt.peregrine: No such file"):
        peregrine.ray.run(plan, ship_model=True)
    with pytest.raises(peregrine.Error, match="no node of the cluster has 3 GPUs"):
        peregrine.ray.run(corpus.Plan(source, tmp_path / "out"), num_gpus=3)


def test_a_bad_partition_costs_no_other_on_ray(ray, tmp_path):
    import peregrine.ray

    (tmp_path / "in").mkdir()
    (tmp_path / "in/good.jsonl").write_text('{"text": "Good morning!"}\n')
    (tmp_path / "in/bad.jsonl").write_text('{"text": "Good morning!"}\n{\n')
    report = peregrine.ray.run(corpus.Plan(tmp_path / "in", tmp_path / "out"), num_cpus=2)
    assert report.done == 1 and "bad.jsonl, line 2: no JSON" in report.failures[0].error


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_the_example_for_spark(source, translator, tmp_path):
    pytest.importorskip("pyspark")
    parquet = pytest.importorskip("pyarrow.parquet")
    command = [sys.executable, str(EXAMPLE), str(source), str(tmp_path / "out"), "--master", "local[2,4]", "--model", str(MODEL)]
    package = str(Path(peregrine.__file__).parents[1])
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": package, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [row for file in (tmp_path / "out").glob("*.parquet") for row in parquet.ParquetFile(file).read().to_pylist()]
    texts = different(600)
    expected = [{"id": i, "text": texts[i], "translation": text} for i, text in enumerate(translator.translate(texts))]
    assert sorted(rows, key=lambda row: row["id"]) == expected

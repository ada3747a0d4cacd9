"""A corpus on Spark: Parquet in, Parquet out, a column more.

    spark-submit --conf spark.task.cpus=4 --conf spark.task.maxFailures=8 spark_corpus.py IN OUT --column text --model PATH

Each Python worker of an executor opens the model once and has as many threads as Spark gives a task CPUs. All columns are kept, ids among
them. Spark does a killed worker's task again, and its committer lets each task's file appear once. With ``--id NAME`` a job that was
stopped is gone on with by the same command: files of tasks stay, and rows whose id is in OUT are left out.

``spark.task.cpus`` is the number of a worker's threads, so set it to what a task shall have. A file is a task, and larger files than
--partition-bytes are several: a task should have some thousands of lines for each of its threads.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Iterator

from peregrine import corpus

class TranslateBatches:
    """What each task does to its record batches."""

    def __init__(self, column: str, into: str, model: str | None) -> None:
        self.column, self.into, self.model = column, into, model

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow  # type: ignore
        from pyspark import TaskContext

        task = TaskContext.get()
        # Opened by the first task of this Python worker; Spark keeps workers for many tasks.
        translator = corpus.opened(self.model, threads=task.cpus() if task is not None else 1)
        for batch in batches:
            done = translator.translate(batch.column(self.column))
            yield pyarrow.RecordBatch.from_arrays([*batch.columns, done], [*batch.schema.names, self.into])


def translate(frame: Any, column: str = "text", into: str = "translation", model: str | None = None) -> Any:
    """A data frame with a column of translations more. What is missing stays missing."""
    from pyspark.sql.types import StringType, StructType

    schema = StructType([*frame.schema.fields]).add(into, StringType())
    return frame.mapInArrow(TranslateBatches(column, into, model), schema)


def rows_in(spark: Any, output: str) -> Any:
    """What is in a folder; None if that is nothing."""
    from pyspark.errors import AnalysisException

    try:
        return spark.read.parquet(output)
    except AnalysisException:
        return None


def main() -> None:
    """The job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--column", default="text")
    parser.add_argument("--into", default="translation")
    parser.add_argument("--id", help="the column of ids, by which a job that was stopped is gone on with")
    parser.add_argument("--model")
    parser.add_argument("--master", help="where to run, such as local[2,4]: two tasks at once, each tried four times")
    parser.add_argument("--partition-bytes", type=int, default=128 << 20, help="bytes of input for a task at most")
    given = parser.parse_args()

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("peregrine corpus")
    if given.master:
        builder = builder.master(given.master)
    spark = (
        builder.config("spark.sql.files.maxPartitionBytes", given.partition_bytes)
        # As if opening a file cost as much as reading all a task may: small files are not joined.
        .config("spark.sql.files.openCostInBytes", given.partition_bytes)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", 10_000)
        # A task's file gets its name when the task ends, by one rename, and not when the job does.
        .config("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version", 2 if given.id else 1)
        .getOrCreate()
    )
    begin = time.perf_counter()
    frame = spark.read.parquet(given.source)
    if given.id and (done := rows_in(spark, given.output)) is not None:
        frame = frame.join(done.select(given.id), given.id, "left_anti").select(frame.columns)
    mode = "append" if given.id else "errorifexists"
    translate(frame, given.column, given.into, given.model).write.mode(mode).parquet(given.output)
    print(f"job: {time.perf_counter() - begin:.1f} s", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

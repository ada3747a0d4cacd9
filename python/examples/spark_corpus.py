"""A corpus on Spark: Parquet in, Parquet out, a column more.

    spark-submit --conf spark.task.cpus=4 --conf spark.task.maxFailures=8 spark_corpus.py IN OUT --column text --model PATH

Each Python worker of an executor opens the model once and has as many threads as Spark gives a task CPUs. All columns are kept, ids among
them. Spark does a killed worker's task again, and its committer lets each task's file appear once. What Spark does not do is to go on
with a job that was stopped: for that, split the input by folders, or use ``peregrine corpus``.

Two settings matter. ``spark.task.cpus`` must be the threads of a worker, else workers share cores. And a task should have some
thousands of lines: small files are joined and large ones split by ``spark.sql.files.maxPartitionBytes`` (here from --partition-bytes).
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


def main() -> None:
    """The job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--column", default="text")
    parser.add_argument("--into", default="translation")
    parser.add_argument("--model")
    parser.add_argument("--master", help="where to run, such as local[2,4]: two tasks at once, each tried four times")
    parser.add_argument("--partition-bytes", type=int, default=16 << 20, help="bytes of input for a task")
    given = parser.parse_args()

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("peregrine corpus")
    if given.master:
        builder = builder.master(given.master)
    spark = (
        builder.config("spark.sql.files.maxPartitionBytes", given.partition_bytes)
        # The cost that Spark counts for opening a file, else small files are joined too little.
        .config("spark.sql.files.openCostInBytes", min(given.partition_bytes, 4 << 20))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", 10_000)
        .getOrCreate()
    )
    begin = time.perf_counter()
    frame = spark.read.parquet(given.source)
    translate(frame, given.column, given.into, given.model).write.mode("errorifexists").parquet(given.output)
    print(f"job: {time.perf_counter() - begin:.1f} s", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

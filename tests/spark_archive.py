"""Archives the classes that Spark loads, for the Java processes of tests: they start in half the time.

`make spark` runs this once. Java leaves an archive aside that is of another Java or other files.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SPARK = Path(__file__).parents[1] / "build" / "spark"
ARCHIVE = SPARK / "classes.jsa"
JARS = str(SPARK / "pyspark" / "jars" / "*")
"""What the class path of a process begins with that uses the archive."""
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for processes that live for seconds."""
_OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
"""Packages of Java that Spark and Arrow reach into."""
_CONF = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.io.encryption.enabled": "true",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def archive() -> None:
    """Run a job in a Java process that writes its classes into the archive when it ends."""
    made = ARCHIVE.with_suffix(".new")
    made.unlink(missing_ok=True)
    conf = [f"--conf={key}={value}" for key, value in _CONF.items()]
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    command = ["java", *OPTIONS.split(), f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable", *opened]
    command += ["-Dio.netty.tryReflectionSetAccessible=true", "-cp", JARS]
    finished = subprocess.run(
        [*command, "org.apache.spark.deploy.SparkSubmit", *conf, __file__],
        env={**os.environ, "PYTHONPATH": str(SPARK), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        sys.exit(finished.stderr[-2000:])
    made.replace(ARCHIVE)


def work() -> None:
    """Do what the Spark engine does: sort, number, shuffle, join, write and read, with Python in between."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sql

    session = SparkSession.builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        numbers = session.range(100).withColumn("key", sql.sha2(sql.col("id").cast("string"), 256))
        places = numbers.orderBy("key").zipWithIndex("place")
        places.write.parquet(f"file://{folder}/places")
        stored = session.read.parquet(f"file://{folder}/places")
        counts = stored.groupBy((sql.col("id") % 7).alias("id")).agg(sql.sum("place").alias("sum"))
        joined = (
            stored.join(counts, "id")
            .select("id", "sum")
            .mapInArrow(lambda batches: batches, "id long, sum long")
        )
        joined.write.option("header", True).csv(f"file://{folder}/joined")
        session.read.option("header", True).csv(f"file://{folder}/joined").collect()
    session.stop()


if __name__ == "__main__":
    # Spark starts this file again, to run the job, and says where its Java process listens.
    work() if "PYSPARK_GATEWAY_PORT" in os.environ else archive()

"""Streaming queries in the session of the tests: run to their end, or until a condition holds.

Spark itself ends a query where the machine is busy (`gave_up_on_python`): before its first batch, so it starts again.
"""

from pyspark.errors import StreamingQueryException

from tests.spark.processes import gave_up_on_python
from tests.support.spark_cli import run
from tests.support.waiting import SCENARIO_LIMIT_S, wait_until

LIMIT_S = 120


def run_to_the_end(start):
    """Start a query that ends by itself, and return it after its end; raise its error."""
    while True:
        query = start()
        try:
            assert query.awaitTermination(LIMIT_S), "the query did not end"
        except StreamingQueryException as error:
            if not gave_up_on_python(error):
                raise
        else:
            return query


def run_until(start, holds, what):
    """Start a query that does not end by itself, and return it as soon as a condition holds."""
    query = start()

    def is_so():
        nonlocal query
        if not query.isActive:
            error = query.exception()
            assert gave_up_on_python(error), error
            query = start()
        return holds(query)

    try:
        wait_until(is_so, what, SCENARIO_LIMIT_S)
    except BaseException:
        query.stop()
        raise
    return query


def run_command(*words):
    """Run a command of `dledger spark` whose query ends by itself; return what it printed and its exit code."""
    done = run(*words)
    while done.exit_code and gave_up_on_python(done.stderr):
        done = run(*words)
    return done

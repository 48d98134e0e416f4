#!/bin/sh
# Runs a command of `dledger spark` on an existing cluster; the words behind the kind are those of the command.
#
#   scripts/spark_submit.sh standalone spark://head:7077 report /data/n0 --page report.html
#   scripts/spark_submit.sh yarn - audit /data/n0 /data/n1 /data/n2
#   scripts/spark_submit.sh kubernetes k8s://https://api:6443 count /data/n0
#
# standalone: every host has Python with the libraries of the extra; our modules are sent along (--py-files).
# yarn: hosts need nothing but Python: an environment is packed and sent along (--archives).
# kubernetes: DLEDGER_IMAGE names an image with Spark and the extra; our modules are sent along.
#
# All hosts must see the directories under the same names. SPARK_ARGS is handed on: SPARK_ARGS="--executor-memory 4g".
set -eu
kind=${1:?standalone, yarn or kubernetes}; master=${2:?address of the master, - for yarn}; shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
python=$root/.venv/bin/python
submit=$root/.venv/bin/spark-submit
mkdir -p "$root/dist"
"$python" "$root/scripts/spark_package.py" zip "$root/dist/dledger.zip" >&2
program=$root/pipeline/spark_submit.py
utc="--conf spark.sql.session.timeZone=UTC"
case $kind in
standalone)
    # shellcheck disable=SC2086
    PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python} exec "$submit" --master "$master" $utc \
        --py-files "$root/dist/dledger.zip" ${SPARK_ARGS:-} "$program" "$@" ;;
yarn)
    "$python" "$root/scripts/spark_package.py" environment "$root/dist/environment.tar.gz" >&2
    # shellcheck disable=SC2086
    PYSPARK_DRIVER_PYTHON=$python PYSPARK_PYTHON=./environment/bin/python exec "$submit" --master yarn $utc \
        --archives "$root/dist/environment.tar.gz#environment" ${SPARK_ARGS:-} "$program" "$@" ;;
kubernetes)
    # shellcheck disable=SC2086
    PYSPARK_DRIVER_PYTHON=$python exec "$submit" --master "$master" $utc \
        --conf "spark.kubernetes.container.image=${DLEDGER_IMAGE:?an image with Spark, numpy and pyarrow}" \
        --conf spark.kubernetes.pyspark.pythonVersion=3 \
        --py-files "$root/dist/dledger.zip" ${SPARK_ARGS:-} "$program" "$@" ;;
*)
    echo "spark_submit.sh: standalone, yarn or kubernetes, not $kind" >&2; exit 2 ;;
esac

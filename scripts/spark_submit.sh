#!/bin/sh
# Runs a command of `dledger spark` on an existing cluster; the words after the kind are those of the command.
#
#   scripts/spark_submit.sh standalone spark://head:7077 report /data/n0 --page report.html
#   scripts/spark_submit.sh yarn - audit /data/n0 /data/n1 /data/n2
#   scripts/spark_submit.sh kubernetes k8s://https://api:6443 count /data/n0
#
# standalone: every host has Python with the libraries of the extra; our modules are sent along (--py-files).
# yarn: hosts need nothing but Python: an environment is packed and sent along (--archives).
# kubernetes: DLEDGER_IMAGE names an image with Spark and the extra; our modules are sent along.
#
# All hosts must see the directories under the same names; else name the addresses of a broker.
# SPARK_ARGS is handed on: SPARK_ARGS="--executor-memory 4g". DRY_RUN=1 packs and runs nothing: it prints, a line for a
# word, the settings of the environment and the command that would run.
set -eu
kind=${1:?standalone, yarn or kubernetes}; master=${2:?address of the master, - for yarn}; shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
python=$root/.venv/bin/python
package=$root/dist/dledger.zip
environment=$root/dist/environment.tar.gz
submit=$root/.venv/bin/spark-submit

pack() {
    [ -n "${DRY_RUN:-}" ] || "$python" "$root/scripts/spark_package.py" "$@" >&2
}

# shellcheck disable=SC2086
set -- --conf spark.sql.session.timeZone=UTC ${SPARK_ARGS:-} "$root/pipeline/cli/spark_submit.py" "$@"
case $kind in
standalone)
    pack zip "$package"
    set -- PYSPARK_PYTHON="${PYSPARK_PYTHON:-$python}" "$submit" --master "$master" --py-files "$package" "$@" ;;
yarn)
    pack environment "$environment"
    set -- PYSPARK_DRIVER_PYTHON="$python" PYSPARK_PYTHON=./environment/bin/python \
        "$submit" --master yarn --archives "$environment#environment" "$@" ;;
kubernetes)
    image=${DLEDGER_IMAGE:?an image with Spark, numpy and pyarrow}
    pack zip "$package"
    set -- PYSPARK_DRIVER_PYTHON="$python" \
        "$submit" --master "$master" --conf "spark.kubernetes.container.image=$image" --py-files "$package" "$@" ;;
*)
    echo "spark_submit.sh: standalone, yarn or kubernetes, not $kind" >&2; exit 2 ;;
esac
if [ -n "${DRY_RUN:-}" ]; then
    printf '%s\n' "$@"
else
    exec env "$@"
fi

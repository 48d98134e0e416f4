#!/bin/sh
# Prints a folder in memory with space for the files of tests, or nothing.
#
# The tests need at most about 3 GB at a time; Spark, brokers and the tests themselves need memory beside that. A folder
# from which no program may be started (noexec, as in many containers) does not do.
set -eu
FOLDER=/dev/shm
FOLDER_GIB_MIN=6
MEMORY_GIB_MIN=16

gib_available=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
gib_free=$(df --block-size=1G --output=avail "$FOLDER" | tail -n 1)
if [ "$gib_available" -ge "$MEMORY_GIB_MIN" ] && [ "$gib_free" -ge "$FOLDER_GIB_MIN" ]; then
	awk -v folder="$FOLDER" '$2 == folder && $3 == "tmpfs" && $4 !~ /noexec/ { print folder; exit }' /proc/mounts
fi

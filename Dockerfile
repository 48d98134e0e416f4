# The server and its commands in an environment of their own, without compilers and tests, as a user that is not root:
#
#     docker build -t dledger .
#
# docs/how-to/container.md says how to run it. tests/unit/documents/test_container.py checks this file.

FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
COPY pyproject.toml README.md LICENSE pyspark_dledger.py pyspark_dledger_lake.py ./
COPY store store
COPY dledger dledger
COPY commitlog commitlog
COPY cluster cluster
COPY pipeline pipeline
COPY scripts/build_native.py scripts/
# Wheels alone, each with one of its hashes; what builds the project, and the compiler for its native module, is no part of
# the image.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && python -m venv /opt/dledger && python -m venv /build \
    && /opt/dledger/bin/pip install --no-cache-dir --only-binary :all: --require-hashes --requirement requirements/runtime.txt \
    && /build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes --requirement requirements/build.txt \
    && /build/bin/hatchling build --target wheel --directory /wheel \
    && /opt/dledger/bin/pip install --no-cache-dir --no-deps /wheel/*.whl

FROM python:3.13-slim
# The numbers are fixed, so that a directory of the host can be given to this user.
RUN groupadd --gid 10001 dledger \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin dledger \
    && install --directory --owner 10001 --group 10001 --mode 0750 /data
COPY --from=build /opt/dledger /opt/dledger
COPY scripts/container_health.py /opt/dledger/container_health.py
ENV PATH=/opt/dledger/bin:$PATH
# As numbers: Kubernetes checks `runAsNonRoot` only then.
USER 10001:10001
WORKDIR /data
VOLUME /data
# Nodes, clients, metrics and frames of a node; clients of a standalone broker; a name server.
EXPOSE 20911 20921 20931 20941 8081 10911 9876
# A node that recovers a long log does not serve yet.
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 \
    CMD ["python", "/opt/dledger/container_health.py"]
ENTRYPOINT ["dledger"]
CMD ["server"]

# The images of LogHub for Kubernetes: one file, three targets, and larger workers: for pipelines that use
# pandas, and with the vendor's SDK as their client of the log service.
#
#   docker build --target service       -t loghub-service:0.1.0       .
#   docker build --target operator      -t loghub-operator:0.1.0      .
#   docker build --target worker        -t loghub-worker:0.1.0        .
#   docker build --target worker-pandas -t loghub-worker-pandas:0.1.0 .
#   docker build --target worker-sdk    -t loghub-worker-sdk:0.1.0    .
#
# Who publishes an image adds where it comes from: --label org.opencontainers.image.revision=$(git rev-parse HEAD)
# and org.opencontainers.image.source.
#
# BASE_IMAGE is any image of Debian 12 or newer. Missing packages are installed from Debian, so a base
# image that has them all (the tests build one) needs no network for that. Dependencies have layers of
# their own, built from hash-locked lists before the source is copied: a change to the source rebuilds
# only the last layers. An image has only what it imports; tests/house/test_images.py compares the two.
ARG BASE_IMAGE=debian-image
# Compiles the native part of service and worker. An image without cargo, such as the base image, leaves it out:
# then both do the same in Python.
ARG RUST_IMAGE=rust-image

# Pinned by the digest of all architectures. In lines of their own, since Dependabot renews no default of an ARG;
# a builder leaves out a stage that another image takes the place of.
FROM debian:bookworm-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241 AS debian-image
FROM rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS rust-image

FROM ${BASE_IMAGE} AS base
RUN if ! command -v python3 || ! command -v tini; then \
      apt-get update \
      && apt-get install -y --no-install-recommends python3 tini ca-certificates \
      && rm -rf /var/lib/apt/lists/*; \
    fi
# The home is the working directory, which must be open to every user of the image. A platform that assigns the
# user of a container, such as OpenShift, gives it the group 0, so that group may do what the user may.
RUN useradd --uid 10001 --user-group --create-home --home-dir /home/loghub --shell /usr/sbin/nologin loghub \
    && chown 10001:0 /home/loghub \
    && chmod 0770 /home/loghub
ENV PATH=/opt/loghub/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    HOME=/home/loghub
WORKDIR /home/loghub

FROM base AS tooling
RUN if ! python3 -c 'import ensurepip'; then \
      apt-get update \
      && apt-get install -y --no-install-recommends python3-venv \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN python3 -m venv /opt/loghub
# For networks with their own package index or certificate authority, or, further below, with their own Maven
# repository. Used only during the build and not stored in the images.
ARG PIP_INDEX_URL
ARG PIP_CERT

FROM ${RUST_IMAGE} AS native
ARG PIP_INDEX_URL
ARG PIP_CERT
COPY locks/native.txt /locks/
COPY native /native
RUN mkdir /wheels && if command -v cargo; then \
      if ! python3 -c 'import ensurepip'; then \
        apt-get update && apt-get install -y --no-install-recommends python3-venv; \
      fi \
      && python3 -m venv /maturin \
      && /maturin/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /locks/native.txt \
      && /maturin/bin/maturin build --release --locked --manifest-path /native/Cargo.toml --out /wheels; \
    fi

FROM tooling AS service-packages
ARG PIP_INDEX_URL
ARG PIP_CERT
COPY locks/service.txt /locks/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /locks/service.txt
COPY --from=native /wheels /wheels
RUN find /wheels -name '*.whl' -exec pip install --no-cache-dir --disable-pip-version-check --no-index {} + \
    && pip uninstall --yes --disable-pip-version-check setuptools pip

FROM tooling AS operator-packages
ARG PIP_INDEX_URL
ARG PIP_CERT
COPY locks/operator.txt /locks/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /locks/operator.txt \
    && pip uninstall --yes --disable-pip-version-check setuptools pip

FROM tooling AS worker-environment
ARG PIP_INDEX_URL
ARG PIP_CERT
COPY locks/worker.txt /locks/
# Without its archives every Python that Spark starts imports the installed, compiled pyspark: Spark would put
# the archives first, and each process would compile what it imports from them.
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /locks/worker.txt \
    && rm /opt/loghub/lib/python3*/site-packages/pyspark/python/lib/*.zip
COPY --from=native /wheels /wheels
RUN find /wheels -name '*.whl' -exec pip install --no-cache-dir --disable-pip-version-check --no-index {} +

FROM worker-environment AS worker-packages
RUN pip uninstall --yes --disable-pip-version-check setuptools pip

FROM base AS service
RUN mkdir --mode=0770 /data && chown 10001:0 /data
COPY --from=service-packages /opt/loghub /opt/loghub
EXPOSE 8080
ENTRYPOINT ["tini", "--", "python", "-m", "loghub_service"]
CMD ["--data", "/data", "--listen", ":8080"]
COPY loghub/__init__.py loghub/atomic_file.py loghub/clock.py loghub/freed_memory.py loghub/listening.py loghub/progress_line.py /app/loghub/
COPY loghub/domain /app/loghub/domain
COPY loghub/wire /app/loghub/wire
COPY service/loghub_service /app/loghub_service
RUN python -m compileall -q /app
COPY LICENSE /licenses/
LABEL org.opencontainers.image.title="Embedded LogHub service" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001

FROM base AS operator
COPY --from=operator-packages /opt/loghub /opt/loghub
ENTRYPOINT ["tini", "--", "python", "-m", "loghub_operator"]
COPY loghub/__init__.py loghub/backoff.py loghub/clock.py loghub/extras.py loghub/listening.py loghub/near_names.py /app/loghub/
COPY loghub/contract /app/loghub/contract
COPY loghub/client /app/loghub/client
COPY loghub/domain /app/loghub/domain
COPY loghub/wire /app/loghub/wire
# Without the folders that .dockerignore leaves out: the `loghub` command and the demo run on a laptop.
COPY operator/loghub_operator /app/loghub_operator
RUN python -m compileall -q /app
COPY LICENSE /licenses/
LABEL org.opencontainers.image.title="LogHub operator" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001

FROM base AS worker
# The Java package links manual pages into a directory that slim base images lack.
RUN if ! command -v java; then \
      mkdir -p /usr/share/man/man1 \
      && apt-get update \
      && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
      && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=worker-packages /opt/loghub /opt/loghub
# Spark's connector to Kafka (10 MB), before the archive of Spark's classes is made.
ARG DEFAULT_ARTIFACT_REPOSITORY
ARG PIP_CERT
COPY worker/loghub_worker/image/spark_jars.py locks/jars.txt /opt/loghub/
RUN python /opt/loghub/spark_jars.py /opt/loghub/jars.txt
# A class data sharing archive for Spark's JVM halves the CPU time of a worker's start.
COPY worker/loghub_worker/image/cds_archive.py /opt/loghub/
RUN python /opt/loghub/cds_archive.py /opt/loghub/spark.jsa
ENV LOGHUB_CLASS_ARCHIVE=/opt/loghub/spark.jsa
ENTRYPOINT ["tini", "--", "python", "-m", "loghub_worker"]
COPY loghub/__init__.py loghub/atomic_file.py loghub/backoff.py loghub/clock.py loghub/extras.py loghub/freed_memory.py loghub/listening.py loghub/times.py /app/loghub/
COPY loghub/contract /app/loghub/contract
COPY loghub/client /app/loghub/client
COPY loghub/domain /app/loghub/domain
COPY loghub/wire /app/loghub/wire
COPY worker/loghub_consumer /app/loghub_consumer
COPY worker/loghub_worker /app/loghub_worker
RUN python -m compileall -q /app
COPY LICENSE /licenses/
LABEL org.opencontainers.image.title="LogHub worker" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001

FROM worker AS worker-pandas
ARG PIP_INDEX_URL
ARG PIP_CERT
USER root
COPY locks/worker-pandas.txt /locks/
# By the pip of another stage, so that none is left in the image.
RUN --mount=type=bind,from=tooling,source=/opt/loghub,target=/opt/tooling \
    /opt/tooling/bin/python3 -m pip --python /opt/loghub/bin/python3 install \
      --no-cache-dir --disable-pip-version-check --require-hashes -r /locks/worker-pandas.txt
LABEL org.opencontainers.image.title="LogHub worker with pandas"
USER 10001:10001

FROM worker AS worker-sdk
ARG PIP_INDEX_URL
ARG PIP_CERT
USER root
COPY locks/worker-sdk.txt /locks/
RUN --mount=type=bind,from=tooling,source=/opt/loghub,target=/opt/tooling \
    /opt/tooling/bin/python3 -m pip --python /opt/loghub/bin/python3 install \
      --no-cache-dir --disable-pip-version-check --require-hashes -r /locks/worker-sdk.txt
ENV LOGHUB_CLIENT=sdk
LABEL org.opencontainers.image.title="LogHub worker with the vendor's SDK"
USER 10001:10001

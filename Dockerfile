# The bot in a container: slim, not root, every package held to its hash. SQLite in /data, or PostgreSQL by DATABASE_URL.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements/base.txt requirements/build.txt requirements/clickhouse.txt requirements/dynamodb.txt requirements/otel.txt requirements/postgres.txt requirements/s3.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python -m venv /opt/ootbot \
 && /opt/ootbot/bin/pip install --no-cache-dir --require-hashes -r requirements/base.txt -r requirements/clickhouse.txt -r requirements/dynamodb.txt -r requirements/otel.txt -r requirements/postgres.txt -r requirements/s3.txt
COPY pyproject.toml README.md LICENSE app.yml app.relay.yml ./
COPY bot bot
COPY handlers handlers
COPY config config
COPY actions/report actions/report
COPY actions/monitor actions/monitor
RUN /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
 && /opt/ootbot/bin/pip install --no-cache-dir --no-deps --no-index /wheel/*.whl

FROM python:3.13-slim
RUN groupadd --system --gid 10001 ootbot \
 && useradd --system --uid 10001 --gid ootbot --no-create-home --shell /usr/sbin/nologin ootbot \
 && install -d -o ootbot -g ootbot -m 0700 /data
COPY --from=build /opt/ootbot /opt/ootbot
ENV PATH=/opt/ootbot/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OOTBOT_HOST=0.0.0.0 \
    OOTBOT_PORT=8080 \
    OOTBOT_DATA_DIR=/data \
    OOTBOT_LOG_FORMAT=json
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["ootbot"]
CMD ["serve"]

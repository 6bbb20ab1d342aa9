# The program taskledger makes a token when the container starts first.
ARG TASKLEDGER_IMAGE=taskledger
FROM ${TASKLEDGER_IMAGE} AS taskledger

FROM python:3.13-slim
COPY --from=taskledger /taskledger /usr/local/bin/taskledger
COPY clients/python /client
RUN pip install --no-cache-dir /client
COPY deploy/compose/worker.py /worker.py
USER 65532:65532
CMD ["sh", "-c", "umask 077; test -s /tmp/token || taskledger create token worker-python --role worker --kind 'greet.*' > /tmp/token && TASKLEDGER_TOKEN=$(cat /tmp/token) exec python /worker.py"]

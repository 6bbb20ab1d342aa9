"""A worker of greet.python, by the HTTP API. TASKLEDGER_URL and TASKLEDGER_TOKEN name the server."""

import logging
import os

import taskledger

logging.basicConfig(level=logging.INFO)
worker = taskledger.Worker(os.environ["TASKLEDGER_URL"], os.environ["TASKLEDGER_TOKEN"], slots=4)


@worker.handle("greet.python")
def greet(job: taskledger.Job) -> dict:
    job.log.info("hello %s", job.args)
    return {"greeted": job.args}


worker.run()

"""A credential broker with a fake STS, and tokens of two jobs."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager

from slurmplugins.model.credentials import Credentials
from slurmplugins.node import job_tokens
from slurmplugins.node.credential_broker import PATH, CredentialBroker
from slurmplugins.node.job_tokens import JobIdentity
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock

ADA = JobIdentity(7, os.getuid(), "ada", "vision")
BEN = JobIdentity(8, os.getuid(), "ben", "vision")


class Stage:
    """A broker with a fake STS."""

    def __init__(self, tmp_path) -> None:
        self.jobs = tmp_path / "jobs"
        self.clock = FakeClock()
        self.lines: list[str] = []
        self.calls: list[JobIdentity] = []
        self.fault: Exception | None = None
        self.call_seconds = 0.0
        self.stalled_job: int | None = None
        self.answering = threading.Event()
        log = Log(self.lines.append, self.clock, {})
        self.broker = CredentialBroker(self.jobs, self.assume, self.clock, log)
        for identity in (ADA, BEN):
            job_tokens.grant(self.jobs, identity)

    def assume(self, identity):
        self.calls.append(identity)
        self.clock.advance(self.call_seconds)
        if identity.job == self.stalled_job:
            self.answering.wait()
        if self.fault is not None:
            raise self.fault
        number = len(self.calls)
        return Credentials(
            f"ASIA{number}", f"secret of {identity.user}", "session", self.clock.now() + 3600
        )

    def token(self, job=7):
        return (self.jobs / str(job) / "token").read_text()

    def ask(self, job=7):
        return self.broker.answer(PATH, self.token(job))

    @contextmanager
    def stalled_call(self, job=7):
        """Let a job's request wait for STS while the block runs."""
        before = len(self.calls)
        self.stalled_job = job
        request = threading.Thread(target=self.ask, args=[job])
        request.start()
        try:
            while len(self.calls) == before:
                time.sleep(0.001)
            yield
        finally:
            self.answering.set()
            request.join()
            self.stalled_job = None

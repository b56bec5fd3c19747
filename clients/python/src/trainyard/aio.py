"""The client for asyncio. The methods are those of trainyard.Client, which documents them."""
from __future__ import annotations

import asyncio
import os
import time
import uuid
from types import TracebackType
from typing import Any, AsyncIterator, Iterable, List

import grpc
import grpc.aio

from trainyard import _calls, _spec, records
from trainyard._calls import Attempts, Item, JobOrId, Method, Request, Response, Stream
from trainyard._credentials import Places
from trainyard.v1 import cluster_pb2, job_pb2


class Client:
    """Does the same as trainyard.Client, with coroutines and asynchronous iterators.

    A client belongs to one event loop.
    """

    def __init__(self, address: str | None = None, *, token: str | os.PathLike[str] | None = None,
                 authority: str | os.PathLike[str] | None = None, timeout: float | None = None):
        self._target = _calls.Target(address, Places(token, authority), timeout)
        self._opened: grpc.aio.Channel | None = None  # With the first call, in its event loop.

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"trainyard.aio.Client({self._target.address!r})"

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close(None)

    async def submit(self, spec: _spec.Spec, *, namespace: str = "",
                     request_id: str | None = None) -> records.Job:
        request = _calls.submit_request(spec, namespace, request_id or str(uuid.uuid4()))
        return records.job((await self._call(_calls.SUBMIT_JOB, request)).job)

    async def validate(self, spec: _spec.Spec, *, namespace: str = "") -> None:
        request = _calls.submit_request(spec, namespace, "")
        request.validate_only = True
        await self._call(_calls.SUBMIT_JOB, request)

    async def get(self, job: JobOrId) -> records.Job:
        request = job_pb2.GetJobRequest(job_id=_calls.job_id(job))
        return records.job((await self._call(_calls.GET_JOB, request)).job)

    async def list(self, *, states: Iterable[records.State] = (), namespace: str = "",
                   page_size: int = 100) -> AsyncIterator[records.Job]:
        request = _calls.list_request(states, namespace, page_size)
        while True:
            response = await self._call(_calls.LIST_JOBS, request)
            for job in response.jobs:
                yield records.job(job)
            request.page_token = response.next_page_token
            if not request.page_token:
                return

    async def cancel(self, job: JobOrId, reason: str = "") -> records.Job:
        request = job_pb2.CancelJobRequest(job_id=_calls.job_id(job), reason=reason)
        return records.job((await self._call(_calls.CANCEL_JOB, request)).job)

    def watch(self, job: JobOrId) -> AsyncIterator[records.Job]:
        return self._read(_calls.Watch(job))

    async def wait(self, job: JobOrId, timeout: float | None = None) -> records.Job:
        watch = _calls.Watch(job)
        until = None if timeout is None else time.monotonic() + timeout
        async for _ in self._read(watch, until):
            pass
        return watch.outcome()

    def steps(self, job: JobOrId, *, after: int = 0,
              follow: bool = False) -> AsyncIterator[records.Step]:
        return self._read(_calls.Steps(job, after, follow))

    def logs(self, job: JobOrId, *, rank: int | None = None,
             follow: bool = False) -> AsyncIterator[records.LogLine]:
        return self._read(_calls.Logs(job, rank, follow))

    async def events(self, job: JobOrId) -> List[records.Event]:
        request = job_pb2.ListEventsRequest(job_id=_calls.job_id(job))
        return [*map(records.event, (await self._call(_calls.LIST_EVENTS, request)).events)]

    async def workers(self) -> List[records.Worker]:
        request = cluster_pb2.ListWorkersRequest()
        return [*map(records.worker, (await self._call(_calls.LIST_WORKERS, request)).workers)]

    def _channel(self) -> grpc.aio.Channel:
        if self._opened is None:
            credentials = self._target.channel_credentials()
            options = self._target.channel_options()
            self._opened = (
                grpc.aio.insecure_channel(self._target.address, options) if credentials is None else
                grpc.aio.secure_channel(self._target.address, credentials, options))
        return self._opened

    def _open(self, method: Method[Any, Any], request: Any, seconds: float,
              attempts: Attempts) -> Any:
        return getattr(method.stub(self._channel()), method.name)(
            request, timeout=seconds, metadata=attempts.metadata())

    async def _call(self, method: Method[Request, Response], request: Request) -> Response:
        attempts = Attempts(self._target)
        while True:
            try:
                response: Response = await self._open(
                    method, request, self._target.timeout, attempts)
                return response
            except grpc.RpcError as error:
                pause = attempts.pause_after(error)
            await asyncio.sleep(pause)

    async def _read(self, stream: Stream[Item], until: float | None = None) -> AsyncIterator[Item]:
        attempts = Attempts(self._target, until)
        while True:
            call = self._open(
                stream.method, stream.request(), attempts.stream_seconds(), attempts)
            try:
                attempts.opened(await call.initial_metadata())
                async for response in call:
                    attempts.answered()
                    for item in stream.take(response):
                        yield item
                stream.end()
                return
            except grpc.RpcError as error:
                pause = 0.0 if stream.rewind(error) else attempts.pause_after(error)
            finally:
                call.cancel()
            await asyncio.sleep(pause)

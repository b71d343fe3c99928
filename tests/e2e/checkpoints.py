"""Reading the checkpoints of dcrun with numpy alone: their JSON, checksums and pieces, by no code of the product."""

import hashlib
import json
import os

import numpy

DTYPES = {
    "f32": numpy.dtype("<f4"),
    "bf16": numpy.dtype("<u2"),
    "f16": numpy.dtype("<f2"),
    "f64": numpy.dtype("<f8"),
    "i64": numpy.dtype("<i8"),
    "i32": numpy.dtype("<i4"),
    "bool": numpy.dtype("u1"),
    "u8": numpy.dtype("u1"),
}  # bf16 as bits


def xxh64(data):
    """By the xxHash specification 0.1.1, seed 0."""
    mask, (p1, p2, p3, p4, p5) = 2**64 - 1, (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)

    def rotated(value, bits):
        return (value << bits | value >> (64 - bits)) & mask

    def mixed(lane, word):
        return rotated((lane + word * p2) & mask, 31) * p1 & mask

    lanes, whole = [(p1 + p2) & mask, p2, 0, -p1 & mask], len(data) // 32 * 32
    words = numpy.frombuffer(data[:whole], "<u8").tolist()
    for at in range(0, len(words), 4):
        lanes = [mixed(lane, word) for lane, word in zip(lanes, words[at : at + 4], strict=True)]
    value = p5
    if whole:
        value = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            value = ((value ^ mixed(0, lane)) * p1 + p4) & mask
    value, rest = (value + len(data)) & mask, data[whole:]
    while len(rest) >= 8:
        value = (rotated(value ^ mixed(0, int.from_bytes(rest[:8], "little")), 27) * p1 + p4) & mask
        rest = rest[8:]
    if len(rest) >= 4:
        value = (rotated(value ^ int.from_bytes(rest[:4], "little") * p1 & mask, 23) * p2 + p3) & mask
        rest = rest[4:]
    for byte in rest:
        value = rotated(value ^ byte * p5 & mask, 11) * p1 & mask
    for shift, prime in ((33, p2), (29, p3), (32, 1)):
        value = (value ^ value >> shift) * prime & mask
    return value


def folders(root):
    """Paths of the whole checkpoints, oldest first."""
    return [os.path.join(root, name) for name in sorted(os.listdir(root)) if name.startswith("step-")]


def newest(root):
    return folders(root)[-1]


def unsealed(path):
    """The body of a sealed JSON file."""
    with open(path, "rb") as file:
        first, rest = file.readline(), file.read()
    document = json.loads(first + rest)
    assert document["sha256"] == hashlib.sha256(rest).hexdigest(), path
    return document["body"]


def index(folder):
    return unsealed(os.path.join(folder, "index.json"))


def tensor_bytes(path):
    """{name: (bytes, metadata entry)} of a safetensors file."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        table, body = json.loads(file.read(size)), file.read()
    about = table.pop("__metadata__", {})
    return {name: (body[slice(*entry["data_offsets"])], about.get(name)) for name, entry in table.items()}


def state(folder, checksums=False):
    """{(kind, name, rank or None): flat array}; no element is missing or there twice, and, if asked, every piece has its checksum."""
    files, values, seen = {}, {}, {}
    for rank in index(folder)["ranks"]:
        path = os.path.join(folder, rank["file"])
        with open(path, "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == rank["sha256"], path
        for piece in unsealed(path)["pieces"]:
            if piece["file"] not in files:
                files[piece["file"]] = tensor_bytes(os.path.join(folder, piece["file"]))
            data, about = files[piece["file"]][piece["tensor"]]
            dtype = DTYPES[piece["dtype"]]
            part = data[piece["at"] * dtype.itemsize : (piece["at"] + piece["count"]) * dtype.itemsize]
            assert not checksums or f"{xxh64(part):016x}" == piece["xxh64"], piece
            if about is not None:  # a shard describes itself
                about = json.loads(about)
                assert (about["kind"], about["of"], about["first"]) == (piece["kind"], piece["of"], piece["first"])
            key = (piece["kind"], piece["of"], piece.get("rank"))
            count = int(numpy.prod(piece["shape"], dtype=numpy.int64))
            whole = values.setdefault(key, numpy.zeros(count, dtype))
            hits = seen.setdefault(key, numpy.zeros(count, int))
            whole[piece["first"] : piece["first"] + piece["count"]] = numpy.frombuffer(part, dtype)
            hits[piece["first"] : piece["first"] + piece["count"]] += 1
    for key, hits in seen.items():
        assert (hits == 1).all(), key
    return values


def shapes(folder):
    """{(kind, name): shape}"""
    found = {}
    for rank in index(folder)["ranks"]:
        for piece in unsealed(os.path.join(folder, rank["file"]))["pieces"]:
            found[(piece["kind"], piece["of"])] = piece["shape"]
    return found


def different(one, other):
    """Keys of values whose bytes differ, and those that only one has."""
    return sorted(str(k) for k in {*one, *other} if k not in one or k not in other or one[k].tobytes() != other[k].tobytes())

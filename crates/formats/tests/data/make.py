#!/usr/bin/env python3
"""Makes the files of this folder, which the tests read: run it here, with numpy installed.

PyTorch itself is not needed. Python's pickler writes the same instructions for stand-ins of the few
classes and functions that a state dictionary refers to; the archive and the sequence around the
pickle are laid out as torch.save does.
"""

import collections
import io
import pickle
import struct
import sys
import types
import zipfile

import numpy

ARRAYS = {
    "weights": numpy.arange(6, dtype="<f4").reshape(2, 3),
    "zeros": numpy.zeros(1000, "<f4"),
    "text": numpy.frombuffer(b"hi\0", numpy.int8),
}


class Storage:
    def __init__(self, key, values):
        self.key, self.values = key, values


class Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.arguments = storage, offset, shape, strides, False, collections.OrderedDict()

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


def stand_in(module, name, value):
    """Makes the pickler write `module name` where it meets the value."""
    value.__module__, value.__qualname__, value.__name__ = module, name, name
    setattr(sys.modules[module], name, value)
    return value


for name in ["torch", "torch._utils"]:
    sys.modules[name] = types.ModuleType(name)
stand_in("torch._utils", "_rebuild_tensor_v2", lambda *arguments: None)
FLOAT = stand_in("torch", "FloatStorage", type("FloatStorage", (), {}))
LONG = stand_in("torch", "LongStorage", type("LongStorage", (), {}))


def state_dict():
    floats = Storage("0", numpy.arange(6, dtype="<f4"))
    longs = Storage("1", numpy.array([-1, 1 << 40], "<i8"))
    tensors = collections.OrderedDict()
    tensors["embed.weight"] = Tensor(floats, 0, (2, 3), (3, 1))
    tensors["tied.weight"] = Tensor(floats, 0, (2, 3), (3, 1))
    tensors["transposed"] = Tensor(floats, 0, (3, 2), (1, 3))
    tensors["last_row"] = Tensor(floats, 3, (3,), (1,))
    tensors["positions"] = Tensor(longs, 0, (2,), (1,))
    tensors._metadata = collections.OrderedDict({"": {"version": 1}, "embed": {"version": 1}})
    return tensors, [floats, longs]


def pickled(value, legacy):
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            kind = FLOAT if value.values.dtype == numpy.float32 else LONG
            identifier = "storage", kind, value.key, "cpu", len(value.values)
            return identifier + (None,) if legacy else identifier

    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def write_archive(path):
    tensors, storages = state_dict()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("pytorch_model/data.pkl", pickled(tensors, legacy=False))
        archive.writestr("pytorch_model/byteorder", "little")
        for storage in storages:
            archive.writestr(f"pytorch_model/data/{storage.key}", storage.values.tobytes())
        archive.writestr("pytorch_model/version", "3\n")
        archive.writestr("pytorch_model/.data/serialization_id", "0" * 40)


def write_legacy(path):
    tensors, storages = state_dict()
    machine = {
        "protocol_version": 1001,
        "little_endian": True,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    with open(path, "wb") as file:
        for value in [0x1950A86A20F9469CFC6C, 1001, machine]:
            pickle.dump(value, file, protocol=2)
        file.write(pickled(tensors, legacy=True))
        pickle.dump([storage.key for storage in storages], file, protocol=2)
        for storage in storages:
            file.write(struct.pack("<q", len(storage.values)) + storage.values.tobytes())


numpy.savez("numpy_savez.npz", **ARRAYS)
numpy.savez_compressed("numpy_savez_compressed.npz", **ARRAYS)
write_archive("torch_archive.bin")
write_legacy("torch_legacy.bin")

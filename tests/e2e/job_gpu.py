# SPDX-License-Identifier: BSD-2-Clause
"""The GPU side of the test job: the CUDA runtime's C ABI through ctypes.

The library is the simulated runtime, but nothing here depends on that except
ptsim_set_kernel_ns. ctypes.CDLL lets go of the GIL around every call, as
PyTorch does around blocking ones.
"""

import ctypes
from ctypes import POINTER, byref, c_char, c_int, c_size_t, c_uint, c_void_p

H2D, D2H = 1, 2


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class CudaError(RuntimeError):
    pass


class Gpu:
    """One device, its default stream (PyTorch's choice too), a fixed input
    buffer and `launches` kernels a step."""

    def __init__(self, path, kernel_us, launches, input_bytes):
        lib = ctypes.CDLL(path)
        self.lib = lib
        self.launches = launches
        lib.ptsim_set_kernel_ns.argtypes = [ctypes.c_uint64]
        lib.ptsim_set_kernel_ns.restype = None
        lib.cudaMalloc.argtypes = [POINTER(c_void_p), c_size_t]
        lib.cudaHostAlloc.argtypes = [POINTER(c_void_p), c_size_t, c_uint]
        lib.cudaMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
        lib.cudaMemcpyAsync.argtypes = [c_void_p, c_void_p, c_size_t, c_int,
                                        c_void_p]
        lib.cudaLaunchKernel.argtypes = [c_void_p, Dim3, Dim3, POINTER(c_void_p),
                                         c_size_t, c_void_p]
        lib.cudaStreamSynchronize.argtypes = [c_void_p]
        lib.cudaDeviceSynchronize.argtypes = []
        for name in ("cudaMalloc", "cudaHostAlloc", "cudaMemcpy",
                     "cudaMemcpyAsync", "cudaLaunchKernel",
                     "cudaStreamSynchronize", "cudaDeviceSynchronize"):
            getattr(lib, name).restype = c_int

        self.kernel_ns = int(kernel_us * 1000)
        self.enter_thread()
        self.stream = c_void_p(None)
        self.input_bytes = max(input_bytes, 4)
        self.input = c_void_p()
        self.check(lib.cudaMalloc(byref(self.input), self.input_bytes))
        self.loss = ctypes.c_float()
        # Kernels are known by the address of their host stub. Three phases
        # with eight kernels each; any distinct addresses do.
        self.stubs = (c_char * 24)()
        base = ctypes.addressof(self.stubs)
        self.kernels = [[c_void_p(base + 8 * phase + i) for i in range(8)]
                        for phase in range(3)]
        self.grid, self.block = Dim3(64, 1, 1), Dim3(256, 1, 1)
        self.arg = c_void_p(self.input.value)
        if hasattr(lib, "ptreal_kernel"):  # a real device (tests/gpu/real_device.cu)
            lib.ptreal_kernel.restype, lib.ptreal_kernel.argtypes = c_void_p, [c_int]
            self.kernels = [[c_void_p(lib.ptreal_kernel(8 * phase + i)) for i in range(8)]
                            for phase in range(3)]
            self.arg = ctypes.c_ulonglong(self.kernel_ns)
        self.args = (c_void_p * 1)(ctypes.addressof(self.arg))

    def enter_thread(self):
        """To be called by each thread that launches: the simulated runtime
        keeps the kernels' duration per thread."""
        self.lib.ptsim_set_kernel_ns(self.kernel_ns)

    @staticmethod
    def check(rc):
        if rc != 0:
            raise CudaError("CUDA call failed with error %d" % rc)

    def upload(self, address, size):
        self.check(self.lib.cudaMemcpyAsync(self.input, address,
                                            min(size, self.input_bytes), H2D,
                                            self.stream))

    def launch(self, phase, count):
        kernels = self.kernels[phase]
        for i in range(count):
            self.check(self.lib.cudaLaunchKernel(kernels[i % 8], self.grid,
                                                 self.block, self.args, 0,
                                                 self.stream))

    def forward(self):
        self.launch(0, self.launches - self.launches // 2 - self.launches // 8)

    def backward(self):
        self.launch(1, self.launches // 2)

    def optimizer(self):
        self.launch(2, self.launches // 8)

    def sync(self, whole_device):
        if whole_device:
            self.check(self.lib.cudaDeviceSynchronize())
        else:
            self.check(self.lib.cudaStreamSynchronize(self.stream))

    def loss_item(self):
        """What loss.item() does: a blocking copy of one float."""
        self.check(self.lib.cudaMemcpy(ctypes.addressof(self.loss), self.input,
                                       4, D2H))

    def host_buffer(self, size):
        """Address of `size` bytes of page-locked memory, never freed."""
        p = c_void_p()
        self.check(self.lib.cudaHostAlloc(byref(p), size, 0))
        return p.value


class PinnedPool:
    """Page-locked buffers by size, handed out round and round.

    A loader keeps a bounded number of batches in flight, so a buffer is free
    again long before its turn comes, as with PyTorch's caching allocator.
    """

    def __init__(self, gpu, depth):
        self.gpu = gpu
        self.depth = depth
        self.rings = {}

    def take(self, size):
        ring = self.rings.setdefault(size, {"next": 0, "buffers": []})
        if len(ring["buffers"]) < self.depth:
            address = self.gpu.host_buffer(size)
            ring["buffers"].append((ctypes.c_ubyte * size).from_address(address))
            return ring["buffers"][-1]
        ring["next"] = (ring["next"] + 1) % self.depth
        return ring["buffers"][ring["next"]]

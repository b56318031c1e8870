"""A CuPy program: a spectral filter and a sort."""

import cupy
from common import loop, seconds

field = cupy.random.standard_normal((2048, 2048), dtype=cupy.float32)
mask = cupy.random.random((2048, 2048), dtype=cupy.float32) > 0.5


def step():
    spectrum = cupy.fft.fft2(field) * mask
    back = cupy.fft.ifft2(spectrum).real
    cupy.sort(back, axis=1)


loop(step, cupy.cuda.runtime.deviceSynchronize, seconds())

// Stands in for CUDA in torch's build for CPUs, so that torch's profiler has its state for NVTX.
#include <torch/csrc/profiler/stubs/base.h>

namespace {

using namespace torch::profiler::impl;

struct Stand final : ProfilerStubs {
  void record(c10::DeviceIndex *, ProfilerVoidEventStub *, int64_t *) const override {}
  float elapsed(const ProfilerVoidEventStub *, const ProfilerVoidEventStub *) const override { return 0; }
  void mark(const char *) const override {}
  void rangePush(const char *) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
} stand;

[[maybe_unused]] const bool registered = (registerCUDAMethods(&stand), true);

} // namespace

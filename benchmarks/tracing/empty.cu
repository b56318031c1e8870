// Launches empty kernels as fast as the host can; prints ns a launch. empty LAUNCHES [range|graph|unload]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nvtx3/nvToolsExt.h>
__global__ void empty() {}
__global__ void inside() {}
static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
int main(int count, char **words) {
  long launches = count > 1 ? atol(words[1]) : 1000000;
  const char *how = count > 2 ? words[2] : "";
  bool ranges = !strcmp(how, "range");
  double before = now();
  cudaFree(0);
  double ready = now();
  if (!strcmp(how, "graph")) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t whole;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    for (int k = 0; k < 10; k++) {
      nvtxRangePushA(k % 2 ? "odd" : "even");
      if (k % 2) inside<<<1, 1, 0, stream>>>(); else empty<<<1, 1, 0, stream>>>();
      nvtxRangePop();
    }
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&whole, graph, 0);
    double begin = now();
    nvtxRangePushA("launched");
    for (long k = 0; k < launches / 10; k++) {
      cudaGraphLaunch(whole, stream);
      if (k % 100 == 99) cudaStreamSynchronize(stream);
    }
    nvtxRangePop();
    cudaDeviceSynchronize();
    printf("%.1f\n", (now() - begin) / launches * 1e9);
    return 0;
  }
  for (int k = 0; k < 10000; k++) empty<<<1, 1>>>();
  cudaDeviceSynchronize();
  double begin = now();
  for (long k = 0; k < launches; k++) {
    if (ranges) nvtxRangePushA("aten::addmm, seq = 12, op_id = 345");
    empty<<<1, 1>>>();
    if (ranges) nvtxRangePop();
  }
  cudaDeviceSynchronize();
  printf("%.1f %.3f\n", (now() - begin) / launches * 1e9, ready - before);
}

/* A driver without a GPU, and the runtime on it: they call the fake CUPTI as NVIDIA's call theirs. Two devices. */
#define _GNU_SOURCE
#include "fake.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const Hooks *_Atomic hooks;
static pid_t initialized; /* the process whose cuInit ran: a child that it forks can't use the driver */
static Context contexts[2] = {{0, 1}, {1, 2}};
static atomic_int created[2];
static atomic_uint last_correlation, last_graph;
static __thread Context *current;
static __thread uint32_t outer, stream; /* correlation of the thread's outermost call; number of its stream */
static __thread Graph *captured;

/* In place of the system's, in all libraries. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *given) {
  if (getenv("FAKE_NO_THREADS")) return EAGAIN;
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  return real(thread, attributes, function, given);
}

/* A signal comes within a call of these by a thread that takes it: FAKE_INTERRUPT is one, and how many come before: "write 3". */
static void interrupt(const char *function) {
  static atomic_int calls;
  const char *named = getenv("FAKE_INTERRUPT");
  size_t n = strlen(function);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  if (!sigismember(&blocked, SIGTERM) && named && !strncmp(named, function, n) && named[n] == ' ' && calls++ == atoi(named + n)) raise(SIGTERM);
}
ssize_t write(int file, const void *bytes, size_t n) {
  interrupt("write");
  return (ssize_t)syscall(SYS_write, file, bytes, n);
}
int posix_fallocate(int file, off_t from, off_t n) {
  int (*real)(int, off_t, off_t) = NULL;
  *(void **)&real = dlsym(RTLD_NEXT, "posix_fallocate");
  interrupt("posix_fallocate");
  return real(file, from, n);
}

void fake_attach(const Hooks *with) { hooks = with; }

static void inject(void) {
  initialized = getpid();
  const char *path = getenv("CUDA_INJECTION64_PATH");
  if (!path || !strcmp(path, "none")) return;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
  if (!initialize) fprintf(stderr, "fake driver: no injection: %s\n", dlerror());
  else initialize();
}
int cuInit(unsigned flags) { /* other threads' first calls wait for it */
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!flags) pthread_once(&once, inject);
  return initialized == getpid() ? 0 : 3;
}

static int usable(void) { return initialized == getpid(); }

static void resource(int number, Graph *graph, Graph *original, Node *node, Node *of) {
  const Hooks *to = hooks;
  if (to) to->resource(number, current, graph, original, node, of);
}
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 2, usable() ? 0 : 3; }
int cuDeviceGet(int *device, int number) { return *device = number, !usable() ? 3 : number < 0 || number > 1 ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { /* FAKE_UNKNOWN: as a driver that doesn't say so */
  if (getenv("FAKE_UNKNOWN")) return 3;
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(16 * device + i);
  return usable() ? 0 : 3;
}
int cuDeviceGetName(char *name, int size, int device) { /* one GPU, and an instance of another */
  return snprintf(name, (size_t)size, device ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" : "NVIDIA H100 80GB HBM3") < 0;
}
int cuCtxGetCurrent(Context **context) { return *context = current, usable() ? 0 : 3; }
int cuCtxSetCurrent(Context *context) {
  current = context;
  if (current && !atomic_exchange(&created[current->device], 1)) resource(CONTEXT_CREATED, NULL, NULL, NULL, NULL);
  return 0;
}
int cuDevicePrimaryCtxRetain(Context **context, int device) { return *context = &contexts[device], 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = created[device], 0; }
int cuCtxGetDevice(int *device) { return current ? (*device = (int)current->device, 0) : 201; }
static __thread Context *pushed[8];
static __thread int depth;
int cuCtxPushCurrent_v2(Context *context) { return pushed[depth++ & 7] = current, cuCtxSetCurrent(context); }
int cuCtxPopCurrent_v2(Context **context) {
  if (context) *context = current;
  return depth ? (current = pushed[--depth & 7], 0) : 201;
}

static void enter(Call *call, int domain, int number, const char *name, const char *symbol) {
  *call = (Call){.domain = domain, .number = number, .name = name, .symbol = symbol, .outermost = !outer, .context = current};
  call->correlation = outer ? outer : ++last_correlation; /* a driver's call within the runtime's has its number, on an H100 */
  outer = call->correlation;
  const Hooks *to = hooks;
  if (to) to->call(call, 0);
}
static int leave(Call *call, int result) {
  const Hooks *to = hooks;
  call->result = result;
  call->context = current;
  if (to) to->call(call, 1);
  if (call->outermost) outer = 0;
  return result;
}

static Node *add(Graph *graph, const Work *work) {
  Node *node = calloc(1, sizeof *node);
  node->id = (uint64_t)graph->id << 32 | graph->nodes++;
  node->work = *work;
  *graph->end = node;
  graph->end = &node->next;
  return node;
}
static Graph *made(void) {
  Graph *graph = calloc(1, sizeof *graph);
  graph->id = ++last_graph;
  graph->end = &graph->first;
  return graph;
}
static int begin(Work work) {
  const Hooks *to = hooks;
  work.stream = 7 + stream;
  if (captured) {
    resource(NODE_STARTING, captured, NULL, NULL, NULL);
    resource(NODE_CREATED, captured, NULL, add(captured, &work), NULL);
  } else if (to)
    to->work(&work, current, outer, 0, 0);
  return 0;
}

/* A call of the driver; of the runtime, whose first makes the driver ready as cudart does. */
static int refused(int runtime) {
  if (runtime && !cuInit(0) && !current) cuCtxSetCurrent(&contexts[0]);
  return !usable() ? 3 : current ? 0 : 201;
}
#define CALL(domain, number, name, symbol, does) \
  int refusal = refused(domain == IN_RUNTIME); \
  Call call; \
  return refusal ? refusal : (enter(&call, domain, number, name, symbol), leave(&call, does))
#define DRIVER_CALL(number, name, symbol, does) CALL(IN_DRIVER, number, name, symbol, does)
#define RUNTIME_CALL(number, name, symbol, does) CALL(IN_RUNTIME, number, name, symbol, does)

static int idle(void) {
  const Hooks *to = hooks;
  if (to) to->finished();
  return 0;
}
int cuLaunchKernel(const char *name) { DRIVER_CALL(307, "cuLaunchKernel", name, begin((Work){.kind = KERNEL, .name = name})); }
int cuMemcpyHtoDAsync_v2(uint64_t n) { DRIVER_CALL(277, "cuMemcpyHtoDAsync_v2", NULL, begin((Work){.kind = MEMCPY, .copy = 1, .bytes = n})); }
int cuMemcpyDtoHAsync_v2(uint64_t n) { DRIVER_CALL(279, "cuMemcpyDtoHAsync_v2", NULL, begin((Work){.kind = MEMCPY, .copy = 2, .bytes = n})); }
int cuMemcpyAsync(uint64_t n, int copy) { DRIVER_CALL(306, "cuMemcpyAsync", NULL, begin((Work){.kind = copy == 10 ? PEER_COPY : MEMCPY, .copy = copy, .bytes = n})); }
int cuMemsetD8Async(uint64_t n) { DRIVER_CALL(216, "cuMemsetD8Async", NULL, begin((Work){.kind = MEMSET, .bytes = n})); }
int cuCtxSynchronize(void) { DRIVER_CALL(17, "cuCtxSynchronize", NULL, idle()); }
int cuStreamSynchronize(void) { DRIVER_CALL(126, "cuStreamSynchronize", NULL, idle()); }
int cuEventSynchronize(void) { DRIVER_CALL(121, "cuEventSynchronize", NULL, idle()); }
static int copies(uint64_t bytes, int kind) { return kind == 1 ? cuMemcpyHtoDAsync_v2(bytes) : kind == 2 ? cuMemcpyDtoHAsync_v2(bytes) : cuMemcpyAsync(bytes, kind); }
static int sets(int device) { return device < 0 || device > 1 ? 101 : cuCtxSetCurrent(&contexts[device]); }
int cudaLaunchKernel(const char *name) { RUNTIME_CALL(211, "cudaLaunchKernel", name, cuLaunchKernel(name)); }
int cudaMemcpyAsync(uint64_t bytes, int kind) { RUNTIME_CALL(41, "cudaMemcpyAsync", NULL, copies(bytes, kind)); }
int cudaMemsetAsync(uint64_t bytes) { RUNTIME_CALL(51, "cudaMemsetAsync", NULL, cuMemsetD8Async(bytes)); }
int cudaDeviceSynchronize(void) { RUNTIME_CALL(165, "cudaDeviceSynchronize", NULL, cuCtxSynchronize()); }
int cudaStreamSynchronize(void) { RUNTIME_CALL(131, "cudaStreamSynchronize", NULL, cuStreamSynchronize()); }
int cudaEventSynchronize(void) { RUNTIME_CALL(137, "cudaEventSynchronize", NULL, cuEventSynchronize()); }
int cudaSetDevice(int device) { RUNTIME_CALL(16, "cudaSetDevice", NULL, sets(device)); }
void fake_stream(uint32_t number) { stream = number; }

/* Graphs: a captured one, its executable clone whose nodes have numbers of their own, and its launch. */
static int opens(void) { return captured = made(), resource(GRAPH_CREATED, captured, NULL, NULL, NULL), 0; }
static int closes(Graph **graph) { return *graph = captured, captured = NULL, 0; }
static int clones(Graph **clone, Graph *graph) {
  *clone = made();
  resource(EXEC_STARTING, *clone, graph, NULL, NULL);
  resource(GRAPH_CLONED, *clone, graph, NULL, NULL);
  for (Node *node = graph->first; node; node = node->next) resource(NODE_CLONED, *clone, graph, add(*clone, &node->work), node);
  resource(EXEC_CREATED, *clone, graph, NULL, NULL);
  return 0;
}
static int runs(Graph *clone) {
  const Hooks *to = hooks;
  for (Node *node = clone->first; to && node; node = node->next) to->work(&node->work, current, outer, node->id, clone->id);
  return 0;
}
static int grows(Graph *graph, const char *name) {
  Node *node = (resource(NODE_STARTING, graph, NULL, NULL, NULL), add(graph, &(Work){.kind = KERNEL, .name = name, .stream = 7}));
  return resource(NODE_CREATED, graph, NULL, node, NULL), 0;
}
static int ends(Graph *graph) {
  for (Node *next, *node = graph->first; node; node = next) resource(NODE_DESTROYED, graph, NULL, node, NULL), next = node->next, free(node);
  return free(graph), 0;
}
int cuGraphDestroy(Graph *graph) { DRIVER_CALL(517, "cuGraphDestroy", NULL, ends(graph)); }
int cuGraphInstantiateWithFlags(Graph **clone, Graph *graph) { DRIVER_CALL(643, "cuGraphInstantiateWithFlags", NULL, clones(clone, graph)); }
int cuGraphLaunch(Graph *clone) { DRIVER_CALL(514, "cuGraphLaunch", NULL, runs(clone)); }
int cuGraphAddKernelNode_v2(Graph *graph, const char *name) { DRIVER_CALL(689, "cuGraphAddKernelNode_v2", NULL, grows(graph, name)); }
int cudaStreamBeginCapture(void) { RUNTIME_CALL(315, "cudaStreamBeginCapture", NULL, opens()); }
int cudaStreamEndCapture(Graph **graph) { RUNTIME_CALL(319, "cudaStreamEndCapture", NULL, closes(graph)); }
int cudaGraphInstantiate(Graph **clone, Graph *graph) { RUNTIME_CALL(443, "cudaGraphInstantiate", NULL, cuGraphInstantiateWithFlags(clone, graph)); }
int cudaGraphLaunch(Graph *clone) { RUNTIME_CALL(311, "cudaGraphLaunch", NULL, cuGraphLaunch(clone)); }

/* A module is unloaded: its names lie no longer where they lay. */
static int unloads(char *name, const char *next) {
  resource(MODULE_UNLOAD, NULL, NULL, NULL, NULL);
  strcpy(name, next);
  return 0;
}
int cuModuleUnload(char *name, const char *next) { DRIVER_CALL(22, "cuModuleUnload", NULL, unloads(name, next)); }
int fake_replay(const char *names, const char *records) {
  const Hooks *to = hooks;
  return to ? to->replay(names, records), 0 : 1;
}

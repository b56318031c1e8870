/* CUPTI without a GPU. Its environment: FAKE_VERSION, FAKE_SIZES (KIND:BYTES,...), FAKE_FAIL (FUNCTION=CODE,...),
   FAKE_KERNEL_NS (how long the GPU takes for each kernel), FAKE_DROP (every so manieth record is dropped), FAKE_TICKS (1: stamps are of another
   clock until one is set). */
#define _GNU_SOURCE
#include "fake.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OK, INVALID = 1, OPERATION = 7, END = 12, KIND = 21, UNSUPPORTED = 27, HELD = 39, KINDS = 64, NUMBERS = 1024, WAITING = 1024 };
typedef void (*Ask)(uint8_t **, size_t *, size_t *);
typedef void (*Done)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*Function)(void *, int, uint32_t, const void *);
typedef struct { /* as in CUPTI's header */
  uint32_t site;
  const char *function;
  const void *parameters;
  void *result;
  const char *symbol;
  void *context;
  uint32_t context_uid;
  uint64_t *shared;
  uint32_t correlation;
} CallData;
typedef struct { void *graph, *original, *node, *of; uint32_t type; void *dependency, *exec; } GraphData;
typedef struct { void *context, *handle; const void *descriptor; } ResourceData;
_Static_assert(sizeof(CallData) == 72 && sizeof(GraphData) == 56 && sizeof(ResourceData) == 24, "as in CUPTI's header");

typedef struct Buffer {
  uint8_t *bytes;
  size_t size, used, most, records, open; /* open: records whose work hasn't ended */
  struct Buffer *next;
} Buffer;
static Buffer *filling[3], *full, **last_full = &full; /* of each GPU's records, of calls; and those that wait for the worker */
typedef struct { Buffer *buffer; uint8_t *record; uint64_t start, end; } Waiting; /* no buffer: not recorded, or handed over */
static Waiting waiting[WAITING];
static unsigned first, count;
static uint64_t busy[2]; /* until when each GPU is */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Ask ask;
static Done done;
static Function function;
static void *user;
static int handle, working;
static pid_t owner;
static unsigned char kinds[KINDS], calls[2][NUMBERS], wanted[4][NUMBERS];
static size_t sizes[KINDS] = {[MEMCPY] = 96, [MEMSET] = 88, [DRIVER] = 40, [RUNTIME] = 40, [KERNEL] = 216, [PEER_COPY] = 96};
static size_t dropped, written, drop;
static int ticking; /* stamps are of another clock, which another profiler has left */
static unsigned period = 5000; /* of the worker, in us */
static uint64_t kernel_ns = 1000;

static const struct { int domain; uint32_t number; const char *name; } names[] = { /* others are cuOther..., cudaOther... */
    {1, 0, "INVALID"}, {1, 1, "cuInit"}, {1, 17, "cuCtxSynchronize"}, {1, 22, "cuModuleUnload"}, {1, 43, "cuMemcpyHtoD"}, {1, 60, "cuMemcpyHtoDAsync"},
    {1, 115, "cuLaunch"}, {1, 116, "cuLaunchGrid"}, {1, 117, "cuLaunchGridAsync"}, {1, 121, "cuEventSynchronize"}, {1, 126, "cuStreamSynchronize"},
    {1, 216, "cuMemsetD8Async"}, {1, 249, "cuMemsetD8_v2"}, {1, 276, "cuMemcpyHtoD_v2"}, {1, 277, "cuMemcpyHtoDAsync_v2"}, {1, 278, "cuMemcpyDtoH_v2"},
    {1, 279, "cuMemcpyDtoHAsync_v2"}, {1, 306, "cuMemcpyAsync"}, {1, 307, "cuLaunchKernel"}, {1, 440, "cuStreamSynchronize_ptsz"},
    {1, 442, "cuLaunchKernel_ptsz"}, {1, 477, "cuLaunchCooperativeKernel"}, {1, 502, "cuGraphAddKernelNode"}, {1, 514, "cuGraphLaunch"},
    {1, 515, "cuGraphLaunch_ptsz"}, {1, 517, "cuGraphDestroy"}, {1, 643, "cuGraphInstantiateWithFlags"}, {1, 652, "cuLaunchKernelEx"},
    {1, 689, "cuGraphAddKernelNode_v2"}, {2, 0, "INVALID"}, {2, 13, "cudaLaunch_v3020"}, {2, 16, "cudaSetDevice_v3020"}, {2, 41, "cudaMemcpyAsync_v3020"},
    {2, 51, "cudaMemsetAsync_v3020"}, {2, 131, "cudaStreamSynchronize_v3020"}, {2, 137, "cudaEventSynchronize_v3020"}, {2, 165, "cudaDeviceSynchronize_v3020"},
    {2, 211, "cudaLaunchKernel_v7000"}, {2, 311, "cudaGraphLaunch_v10000"}, {2, 315, "cudaStreamBeginCapture_v10000"},
    {2, 319, "cudaStreamEndCapture_v10000"}, {2, 430, "cudaLaunchKernelExC_v11060"}, {2, 443, "cudaGraphInstantiate_v12000"}};

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static const char *setting(const char *name, const char *otherwise) { return getenv(name) ? getenv(name) : otherwise; }
static int failing(const char *name) { /* the code with which a function is to fail */
  if (getpid() != owner) { /* a forked child must leave CUPTI alone: the locks may be held by threads that it lacks */
    fprintf(stderr, "fake CUPTI: %s in a forked child\n", name);
    _exit(77);
  }
  const char *list = setting("FAKE_FAIL", ""), *at = strstr(list, name);
  return at && at[strlen(name)] == '=' ? atoi(at + strlen(name) + 1) : 0;
}
#define MAY_FAIL int to_fail = failing(__func__); if (to_fail) return to_fail

/* Buffers */
static void complete(uint64_t until) { /* the records of work that has ended by a time */
  for (; count && waiting[first].end <= until; first = (first + 1) % WAITING, count--) {
    if (!waiting[first].buffer) continue;
    uint64_t edges[] = {waiting[first].start, waiting[first].end};
    if (ticking) edges[0] /= 3, edges[1] /= 3;
    memcpy(waiting[first].record + 16, edges, 16);
    waiting[first].buffer->open--;
  }
}
static void fill(int which) {
  Buffer *buffer = filling[which];
  *last_full = buffer;
  last_full = &buffer->next;
  filling[which] = NULL;
}
static uint8_t *put(int which, const uint8_t *record, size_t bytes) { /* NULL: dropped */
  Buffer *buffer = filling[which];
  if (drop && ++written % drop == 0) return dropped++, NULL;
  if (buffer && (buffer->used + bytes > buffer->size || (buffer->most && buffer->records == buffer->most))) fill(which), buffer = NULL;
  if (!buffer) {
    buffer = calloc(1, sizeof *buffer);
    if (ask) ask(&buffer->bytes, &buffer->size, &buffer->most);
    if (!buffer->bytes || buffer->size < bytes || (uintptr_t)buffer->bytes % 8) return dropped++, free(buffer), NULL;
    filling[which] = buffer;
  }
  uint8_t *at = memcpy(buffer->bytes + buffer->used, record, bytes);
  buffer->used += bytes;
  buffer->records++;
  return at;
}
static int deliver(int part, int force) { /* full buffers; those in part too; by force, those with open records too */
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* a flush waits for what the worker hands over */
  Buffer *ready = NULL, **end = &ready;
  pthread_mutex_lock(&one);
  pthread_mutex_lock(&lock);
  complete(now());
  for (int which = 0; part && which < 3; which++)
    if (filling[which] && (force || !filling[which]->open)) fill(which);
  for (Buffer **at = &full; *at;) {
    Buffer *buffer = *at;
    if (buffer->open && !force) { at = &buffer->next; continue; }
    *at = buffer->next;
    buffer->next = NULL;
    *end = buffer;
    end = &buffer->next;
    for (unsigned i = 0; buffer->open && i < count; i++)
      if (waiting[(first + i) % WAITING].buffer == buffer) waiting[(first + i) % WAITING].buffer = NULL;
  }
  for (last_full = &full; *last_full;) last_full = &(*last_full)->next;
  pthread_mutex_unlock(&lock);
  for (Buffer *next; ready; ready = next) {
    next = ready->next;
    if (done) done(NULL, 0, ready->bytes, ready->size, ready->used);
    free(ready);
  }
  pthread_mutex_unlock(&one);
  return OK;
}
static void *work_on(void *nothing) {
  sigset_t all;
  sigfillset(&all), pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (;;) usleep(period), deliver(0, 0);
  return nothing;
}

/* Records, at the offsets of CUPTI's header; the rest holds bytes that mean nothing */
#define SET(type, offset, value) (*(type *)(record + (offset)) = (type)(value))
static void work(const Work *of, const Context *context, uint32_t correlation, uint64_t node, uint32_t graph) {
  uint8_t record[256] __attribute__((aligned(8)));
  memset(record, 0x5A, sizeof record);
  SET(uint32_t, 0, of->kind);
  int kernel = of->kind == KERNEL, where = kernel ? 40 : 32;
  SET(uint64_t, 16, 0), SET(uint64_t, 24, 0);
  SET(uint32_t, where, context->device), SET(uint32_t, where + 4, context->uid), SET(uint32_t, where + 8, of->stream);
  SET(uint32_t, kernel ? 92 : of->kind == PEER_COPY ? 60 : 44, correlation);
  SET(uint64_t, kernel ? 144 : of->kind == PEER_COPY ? 72 : 64, node);
  static const int32_t shape[] = {8, 2, 1, 128, 1, 1, 1024, 4096};
  if (kernel) SET(const char *, 104, of->name), SET(uint32_t, 156, graph), SET(uint16_t, 6, 32), memcpy(record + 52, shape, sizeof shape);
  else SET(uint64_t, 8, of->bytes);
  if (of->kind == MEMCPY || of->kind == PEER_COPY) SET(uint8_t, 4, of->copy);
  if (of->kind == MEMCPY || of->kind == MEMSET) SET(uint32_t, 72, graph);
  pthread_mutex_lock(&lock);
  uint64_t at = now(), *until = &busy[context->device];
  for (complete(at); count == WAITING; complete(at)) { /* the queue of launches is full: the host waits, as in CUDA */
    pthread_mutex_unlock(&lock);
    usleep(50);
    pthread_mutex_lock(&lock);
    at = now();
  }
  uint8_t *lies = kinds[of->kind] ? put((int)context->device, record, sizes[of->kind]) : NULL;
  uint64_t start = *until > at ? *until : at;
  *until = start + kernel_ns;
  waiting[(first + count++) % WAITING] = (Waiting){lies ? filling[context->device] : NULL, lies, start, *until};
  if (lies) filling[context->device]->open++;
  pthread_mutex_unlock(&lock);
}
static void finished(void) {
  for (unsigned left = 1; left;) {
    pthread_mutex_lock(&lock);
    complete(now());
    left = count;
    pthread_mutex_unlock(&lock);
    if (left) usleep(20);
  }
}
static void call(Call *of, int leaves) {
  int domain = (int)of->domain;
  if (!leaves) of->began = now();
  if (function && wanted[domain][of->number]) {
    CallData data = {(uint32_t)leaves, of->name, NULL, leaves ? &of->result : NULL, of->symbol, of->context, of->context ? of->context->uid : 0, &of->shared, of->correlation};
    function(user, domain, of->number, &data);
  }
  if (!leaves || !of->outermost || !calls[domain - 1][of->number]) return; /* records are of outermost calls, on an H100 */
  uint8_t record[40] = {0};
  SET(uint32_t, 0, domain == IN_DRIVER ? DRIVER : RUNTIME), SET(uint32_t, 4, of->number);
  SET(uint64_t, 8, of->began), SET(uint64_t, 16, now());
  SET(uint32_t, 24, getpid()), SET(uint32_t, 28, syscall(SYS_gettid)), SET(uint32_t, 32, of->correlation), SET(uint32_t, 36, of->result);
  pthread_mutex_lock(&lock);
  put(2, record, sizeof record);
  pthread_mutex_unlock(&lock);
}
static void resource(int number, Context *context, Graph *graph, Graph *original, Node *node, Node *of) {
  GraphData about = {graph, original, node, of, node && node->work.kind == KERNEL ? 0 : 1, NULL, number == EXEC_CREATED || number == NODE_CLONED ? graph : NULL};
  ResourceData data = {context, NULL, number == CONTEXT_CREATED ? NULL : &about};
  if (number == MODULE_UNLOAD) deliver(1, 0);
  if (function && wanted[OF_RESOURCES][number]) function(user, OF_RESOURCES, (uint32_t)number, &data);
}
static void replay(const char *names_path, const char *records_path) { /* a name is given by its line, from 0 */
  static char *lines[65536];
  size_t lines_read = 0, room = 0;
  uint64_t later = 0; /* the first work is moved to the present, and all with it */
  char *line = NULL;
  FILE *file = fopen(names_path, "r");
  for (ssize_t n; file && (n = getline(&line, &room, file)) > 0 && lines_read < 65536;) line[n - 1] = 0, lines[lines_read++] = strdup(line);
  if (file) fclose(file);
  file = fopen(records_path, "rb");
  uint8_t record[256] __attribute__((aligned(8)));
  while (file && fread(record, 1, 8, file) == 8) {
    uint32_t kind = *(uint32_t *)record;
    if (kind >= KINDS || !sizes[kind] || fread(record + 8, 1, sizes[kind] - 8, file) != sizes[kind] - 8) abort();
    if (kind == KERNEL) SET(const char *, 104, lines[*(uint64_t *)(record + 104)]);
    if (kind != RUNTIME && kind != DRIVER && !later) later = now() - *(uint64_t *)(record + 16);
    if (kind != RUNTIME && kind != DRIVER) *(uint64_t *)(record + 16) += later, *(uint64_t *)(record + 24) += later;
    pthread_mutex_lock(&lock);
    put(kind == RUNTIME || kind == DRIVER ? 2 : 0, record, sizes[kind]);
    pthread_mutex_unlock(&lock);
  }
  if (file) fclose(file);
}

__attribute__((constructor)) static void load(void) {
  static const Hooks hooks = {call, resource, work, finished, replay};
  owner = getpid();
  for (const char *at = getenv("FAKE_SIZES"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    unsigned kind, bytes;
    if (sscanf(at, "%u:%u", &kind, &bytes) == 2 && kind < KINDS) sizes[kind] = bytes;
  }
  kernel_ns = (uint64_t)atoll(setting("FAKE_KERNEL_NS", "1000"));
  drop = (size_t)atoll(setting("FAKE_DROP", "0"));
  ticking = atoi(setting("FAKE_TICKS", "0"));
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  void (*attach)(const Hooks *) = driver ? (void (*)(const Hooks *))dlsym(driver, "fake_attach") : NULL;
  if (attach) attach(&hooks);
}

/* The library's functions, as its header declares them */
int cuptiGetVersion(uint32_t *version) { MAY_FAIL; return *version = (uint32_t)atoi(setting("FAKE_VERSION", "130001")), OK; }
int cuptiGetTimestamp(uint64_t *at) { MAY_FAIL; return *at = now(), OK; }
int cuptiGetResultString(int code, const char **text) {
  *text = code == HELD ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : code == OK ? "CUPTI_SUCCESS" : code < 50 ? "CUPTI_ERROR" : "<unknown>";
  return code < 50 ? OK : INVALID;
}
int cuptiSubscribe(void **subscriber, Function with, void *data) {
  MAY_FAIL;
  if (function) return HELD;
  return *subscriber = &handle, user = data, function = with, OK;
}
int cuptiUnsubscribe(void *subscriber) {
  MAY_FAIL;
  if (subscriber != &handle || !function) return INVALID;
  return memset(wanted, 0, sizeof wanted), function = NULL, OK;
}
int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t number) {
  MAY_FAIL;
  if (subscriber != &handle || domain < 1 || domain > 3 || number >= NUMBERS) return INVALID;
  return wanted[domain][number] = on != 0, OK;
}
int cuptiEnableDomain(uint32_t on, void *subscriber, int domain) {
  MAY_FAIL;
  if (subscriber != &handle || domain < 1 || domain > 3) return INVALID;
  return memset(wanted[domain], on != 0, NUMBERS), OK;
}
int cuptiGetCallbackName(int domain, uint32_t number, const char **name) {
  MAY_FAIL;
  static char others[3][900][24];
  if (domain < 1 || domain > 2 || number >= (domain == 1 ? 806 : 512)) return *name = NULL, INVALID; /* resources have none */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].domain == domain && names[i].number == number) return *name = names[i].name, OK;
  snprintf(others[domain][number], 24, "%sOther%u", domain == 1 ? "cu" : "cuda", number);
  return *name = others[domain][number], OK;
}
int cuptiActivityRegisterCallbacks(Ask with, Done then) {
  MAY_FAIL;
  pthread_t thread;
  if (!with || !then) return INVALID;
  ask = with, done = then;
  if (!working++) pthread_create(&thread, NULL, work_on, NULL);
  return OK;
}
int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) { MAY_FAIL; return ticking = 0, clock ? OK : INVALID; }
static int enable(int kind, unsigned char on) {
  if (kind < 1 || kind >= KINDS || !sizes[kind]) return kind < 1 || kind >= KINDS ? KIND : UNSUPPORTED;
  if (kind == DRIVER || kind == RUNTIME) memset(calls[kind == RUNTIME], on, NUMBERS);
  return kinds[kind] = on, OK;
}
int cuptiActivityEnable(int kind) { MAY_FAIL; return enable(kind, 1); }
int cuptiActivityDisable(int kind) { MAY_FAIL; return enable(kind, 0); }
#ifndef BEFORE_12_5
int cuptiActivityEnableDriverApi(uint32_t number, uint8_t on) { MAY_FAIL; return number < NUMBERS ? calls[0][number] = on, OK : INVALID; }
int cuptiActivityEnableRuntimeApi(uint32_t number, uint8_t on) { MAY_FAIL; return number < NUMBERS ? calls[1][number] = on, OK : INVALID; }
#endif
int cuptiActivityFlushAll(uint32_t forced) { MAY_FAIL; return done ? deliver(1, forced & 1) : OPERATION; }
int cuptiActivityFlushPeriod(uint32_t ms) { MAY_FAIL; return period = ms ? ms * 1000 : 5000, OK; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
  uint8_t *at = *record ? *record + sizes[*(uint32_t *)*record] : buffer;
  if (at >= buffer + valid) return END;
  if (*(uint32_t *)at >= KINDS || !sizes[*(uint32_t *)at]) return KIND;
  return *record = at, OK;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *number) {
  (void)context, (void)stream;
  MAY_FAIL;
  pthread_mutex_lock(&lock);
  *number = dropped, dropped = 0;
  return pthread_mutex_unlock(&lock), OK;
}
int cuptiGetGraphNodeId(const Node *node, uint64_t *id) { MAY_FAIL; return node ? *id = node->id, OK : INVALID; }
int cuptiGetGraphExecId(const Graph *graph, uint32_t *id) { MAY_FAIL; return graph ? *id = graph->id, OK : INVALID; }
int cuptiFinalize(void) { MAY_FAIL; return deliver(1, 1), memset(kinds, 0, sizeof kinds), memset(calls, 0, sizeof calls), memset(wanted, 0, sizeof wanted), function = NULL, OK; }

/* A CUDA program: does what its words say, one after the other, such as: push step launch 100 pop sync. */
#define _GNU_SOURCE
#include "fake.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int cuInit(unsigned), cuLaunchKernel(const char *), cuModuleUnload(char *, const char *), cuGraphAddKernelNode_v2(Graph *, const char *);
int cudaLaunchKernel(const char *), cudaMemcpyAsync(uint64_t, int), cudaMemsetAsync(uint64_t), cudaSetDevice(int), cudaDeviceSynchronize(void);
int cudaStreamSynchronize(void), cudaEventSynchronize(void), cudaStreamBeginCapture(void), cudaStreamEndCapture(Graph **);
int cudaGraphInstantiate(Graph **, Graph *), cudaGraphLaunch(Graph *), cuGraphDestroy(Graph *), cuCtxSynchronize(void), fake_replay(const char *, const char *);
void fake_stream(uint32_t);

/* NVTX as its headers work: each copy asks the library of NVTX_INJECTION64_PATH, once, for handlers of its table. */
typedef void (*Any)(void);
typedef struct { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, reserved; uint64_t payload; int32_t message_type; const void *message; } Attributes;
static Any core[16], core2[16], *core_at[17], *core2_at[17];
static int table(uint32_t module, Any ***at, unsigned *size) {
  *at = module == 1 ? core_at : core2_at;
  return module == 1 || module == 5 ? (size ? *size = 16 : 16), 1 : 0;
}
static const void *export_table(uint32_t number) {
  static const struct { size_t size; int (*module)(uint32_t, Any ***, unsigned *); } callbacks = {sizeof callbacks, table};
  return number == 1 ? &callbacks : NULL;
}
static void begin_nvtx(void) {
  const char *path = getenv("NVTX_INJECTION64_PATH");
  for (int i = 0; i < 16; i++) core_at[i] = &core[i], core2_at[i] = &core2[i];
  void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
  int (*initialize)(const void *(*)(uint32_t)) = library ? (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2") : NULL;
  if (!initialize || !initialize(export_table)) memset(core, 0, sizeof core), memset(core2, 0, sizeof core2);
}
static Any nvtx(Any *functions, int number) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin_nvtx);
  return functions[number];
}
#define CALL(functions, number, type, ...) (nvtx(functions, number) ? ((type)functions[number])(__VA_ARGS__) : 0)
static Attributes attributes(const char *name) { return (Attributes){.version = 3, .size = sizeof(Attributes), .message_type = 1, .message = name}; }
static int push(const char *name) { return CALL(core, 9, int (*)(const char *), name); }
static int pop(void) { return CALL(core, 11, int (*)(void)); }

static char *names[64];
static unsigned kinds = 0;
static void name(const char *list) {
  char *copy = strdup(list), *rest = copy;
  for (kinds = 0; rest;) strcpy(names[kinds++] = malloc(65536), strsep(&rest, ","));
}
static long launch(long n, int (*with)(const char *)) {
  for (long i = 0; i < n; i++) with(names[i % kinds]);
  return n;
}
static void pace(double rate, double seconds) { /* launches at a rate, each millisecond those that are due */
  struct timespec begun, t;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (double at = 0, done = 0; at < seconds; usleep(1000)) {
    clock_gettime(CLOCK_MONOTONIC, &t);
    at = (double)(t.tv_sec - begun.tv_sec) + 1e-9 * (double)(t.tv_nsec - begun.tv_nsec);
    done += (double)launch((long)(at * rate - done), cudaLaunchKernel);
  }
}
static void *paced(void *device) { return cudaSetDevice((int)(long)device), pace(2000, 2), NULL; }
static void own_files(void) { /* closes what it doesn't know, as daemons do, and opens files of its own */
  for (int i = 3; i < 256; i++) close(i);
  for (int i = 0; i < 40; i++) open("own", O_RDWR | O_CREAT | O_APPEND, 0600);
}
static void wait_for_signal(void) { /* blocks it in this thread alone, after others have begun */
  sigset_t set;
  int which;
  sigemptyset(&set), sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL), kill(getpid(), SIGUSR1), sigwait(&set, &which);
}
static void leave(int number) { exit(number); }
static long each;
static void *thread(void *number) {
  char label[32];
  sprintf(label, "thread %ld", (long)number);
  return push(label), launch(each, cudaLaunchKernel), pop(), NULL;
}
static void *endless(void *nothing) {
  for (;;) push("endless"), launch(10, cudaLaunchKernel), cudaStreamSynchronize(), pop();
  return nothing;
}
static void threads(long n) {
  pthread_t all[64];
  for (long i = 0; i < n; i++) pthread_create(&all[i], NULL, thread, (void *)i);
  for (long i = 0; i < n; i++) pthread_join(all[i], NULL);
}

int main(int argc, char **argv) {
  Graph *graph = NULL, *clone = NULL;
  void *domain = NULL, *string;
  uint64_t range = 0;
  Attributes a;
  name("alpha,beta");
  for (char **word = argv + 1; word < argv + argc; word++) {
#define DO(command) else if (!strcmp(*word, command))
#define NEXT (*++word)
#define NUMBER atol(NEXT)
    if (!strcmp(*word, "init")) cuInit(0);
    DO("launch") launch(NUMBER, cudaLaunchKernel);
    DO("driver") launch(NUMBER, cuLaunchKernel);
    DO("copy") { int kind = (int)NUMBER; cudaMemcpyAsync((uint64_t)NUMBER, kind); }
    DO("set") cudaMemsetAsync((uint64_t)NUMBER);
    DO("names") name(NEXT);
    DO("unload") cuModuleUnload(names[0], NEXT);
    DO("device") cudaSetDevice((int)NUMBER);
    DO("stream") fake_stream((uint32_t)NUMBER);
    DO("sync") cudaDeviceSynchronize();
    DO("sync-stream") cudaStreamSynchronize();
    DO("sync-event") cudaEventSynchronize();
    DO("sync-driver") cuCtxSynchronize();
    DO("threads") { long n = NUMBER; each = NUMBER; threads(n); }
    DO("endless") { pthread_t one; pthread_create(&one, NULL, endless, NULL), pthread_detach(one); }
    DO("rate") { double rate = atof(NEXT); pace(rate, atof(NEXT)); }
    DO("both") { /* devices at a rate of 2000 for two seconds */
      pthread_t other;
      pthread_create(&other, NULL, paced, (void *)1), paced(NULL), pthread_join(other, NULL);
    }
    DO("capture") cudaStreamBeginCapture();
    DO("captured") cudaStreamEndCapture(&graph);
    DO("node") cuGraphAddKernelNode_v2(graph, names[0]);
    DO("instantiate") cudaGraphInstantiate(&clone, graph);
    DO("graph") for (long n = NUMBER; n; n--) cudaGraphLaunch(clone);
    DO("destroy") cuGraphDestroy(graph), cuGraphDestroy(clone);
    DO("replay") { char *lines = NEXT; fake_replay(lines, NEXT); }
    DO("push") push(NEXT);
    DO("push-ex") a = attributes(NEXT), CALL(core, 8, int (*)(Attributes *), &a);
    DO("pop") pop();
    DO("start") range = CALL(core, 5, uint64_t (*)(const char *), NEXT);
    DO("end") CALL(core, 7, int (*)(uint64_t), range);
    DO("domain") domain = CALL(core2, 12, void *(*)(const char *), NEXT);
    DO("domain-push") a = attributes(NEXT), CALL(core2, 4, int (*)(void *, Attributes *), domain, &a);
    DO("domain-registered") {
      string = CALL(core2, 10, void *(*)(void *, const char *), domain, NEXT);
      a = attributes(string), a.message_type = 3, CALL(core2, 4, int (*)(void *, Attributes *), domain, &a);
    }
    DO("domain-pop") CALL(core2, 5, int (*)(void *), domain);
    DO("fork") { /* the child does the next so many words, then ends; the parent goes on after them */
      long n = NUMBER;
      pid_t child = fork();
      if (!child) argc = (int)(word - argv + n) + 1, argv[argc] = NULL;
      else waitpid(child, NULL, 0), word += n;
    }
    DO("exec") { execv("/proc/self/exe", word); } /* the rest is the new program's */
    DO("limit") { struct rlimit limit = {(rlim_t)NUMBER, RLIM_INFINITY}; limit.rlim_max = limit.rlim_cur; setrlimit(RLIMIT_FSIZE, &limit); }
    DO("umask") umask((mode_t)strtol(NEXT, NULL, 8));
    DO("own-files") own_files();
    DO("handle") signal(SIGTERM, leave);
    DO("signal") wait_for_signal();
    DO("say") puts(NEXT), fflush(stdout);
    DO("wait") { if (getchar() == EOF) return 9; }
    DO("sleep") usleep((unsigned)(1000 * NUMBER));
    DO("kill") kill(getpid(), SIGKILL);
    DO("_exit") _exit((int)NUMBER);
    DO("segv") raise(SIGSEGV);
    DO("abort") abort();
    else return fprintf(stderr, "no such word: %s\n", *word), 2;
  }
  return 0;
}

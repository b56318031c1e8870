/* Between the fake driver and the fake CUPTI. Handles of contexts, nodes and graphs point to these structures. */
#pragma once
#include <stdint.h>

enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, KERNEL = 10, PEER_COPY = 22 }; /* kinds of records */
enum { IN_DRIVER = 1, IN_RUNTIME = 2, OF_RESOURCES = 3 };                             /* domains of callbacks */
enum { CONTEXT_CREATED = 1, MODULE_UNLOAD = 7, GRAPH_CREATED = 9, GRAPH_CLONED = 11, NODE_STARTING = 12, NODE_CREATED = 13, NODE_DESTROYED = 14,
       EXEC_STARTING = 17, EXEC_CREATED = 18, NODE_CLONED = 20 }; /* callbacks of the domain of resources */

typedef struct { uint32_t device, uid; } Context;

typedef struct Work { /* one kernel, copy or set */
  uint32_t kind, copy, stream;
  const char *name;
  uint64_t bytes;
} Work;

typedef struct Node {
  uint64_t id; /* of the graph in the upper half, as on an H100 */
  Work work;
  struct Node *next;
} Node;

typedef struct Graph {
  uint32_t id, nodes;
  Node *first, **end;
} Graph;

typedef struct { /* a call of the driver or the runtime under way in a thread */
  uint32_t domain, number, correlation;
  const char *name, *symbol;
  int outermost, result;
  Context *context;
  uint64_t began, shared;
} Call;

typedef struct { /* what the fake CUPTI does when the driver calls it */
  void (*call)(Call *call, int leaves);
  void (*resource)(int number, Context *context, Graph *graph, Graph *original, Node *node, Node *of);
  void (*work)(const Work *work, const Context *context, uint32_t correlation, uint64_t node, uint32_t graph);
  void (*finished)(void); /* waits until the GPU is idle */
  void (*replay)(const char *names, const char *records);
} Hooks;

void fake_attach(const Hooks *hooks); /* in the fake driver */

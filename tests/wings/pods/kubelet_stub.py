"""A kubelet that tests steer: its PodResources API on a Unix socket, with messages written byte by byte."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc


def field(number, content):
    """A field of bytes, text or other messages in protobuf's wire format; of numbers, where it is an int."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def devices(resource, ids):
    node = field(1, field(1, 1))  # a NUMA node, which no reader needs
    return field(1, resource) + b"".join(field(2, id) for id in ids) + field(3, node)


class StubKubelet:
    """Pods that a test sets while it answers.

    Attributes:
        pods: By (namespace, pod, container): ids of devices, a mapping of these by resource, or a text, a claim.
    """

    def __init__(self, socket, pods=()):
        self.socket, self.pods = socket, dict(pods)
        self._server = None

    def start(self):
        self._server = grpc.server(ThreadPoolExecutor(2))
        handlers = {"List": grpc.unary_unary_rpc_method_handler(self._list)}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)])
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self):
        self._server.stop(0).wait()
        self.socket.unlink(missing_ok=True)

    def _list(self, request, context):
        assert request == b""
        return b"".join(field(1, self._pod(*key, held)) for key, held in list(self.pods.items()))

    def _pod(self, namespace, pod, container, held):
        if isinstance(held, str):
            inside = field(5, field(1, "class") + field(2, held) + field(3, namespace))
        else:
            by_resource = held if isinstance(held, dict) else {"nvidia.com/gpu": held}
            inside = b"".join(field(2, devices(resource, ids)) for resource, ids in by_resource.items())
        container = field(1, container) + inside + field(3, 5) + field(4, field(1, "memory") + field(2, 1 << 30))
        return field(1, pod) + field(2, namespace) + field(3, container)


@contextmanager
def kubelet(socket, pods=()):
    """A kubelet that answers in the block."""
    stub = StubKubelet(socket, pods)
    stub.start()
    try:
        yield stub
    finally:
        stub.stop()

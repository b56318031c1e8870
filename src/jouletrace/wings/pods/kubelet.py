"""Asks a kubelet which container holds which devices: its API PodResources v1, by gRPC on a Unix socket.

Messages are those of https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto, without
fields that aren't read.
"""

from __future__ import annotations

import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jouletrace.run.files import shown

TIMEOUT_S = 5.0
"""Of an answer."""

_MESSAGES = {
    "ContainerDevices": ("device_ids=2*",),
    "DynamicResource": ("claim_name=2", "claim_namespace=3"),
    "ContainerResources": ("name=1", "devices=2*ContainerDevices", "dynamic_resources=5*DynamicResource"),
    "PodResources": ("name=1", "namespace=2", "containers=3*ContainerResources"),
    "ListPodResourcesResponse": ("pod_resources=1*PodResources",),
}
"""Fields of each message: name, number, * of a list, and the message of its entries if they aren't strings."""

_OPTIONS = [("grpc.max_receive_message_length", 16 * 2**20), ("grpc.enable_http_proxy", 0)]
"""The kubelet's own limit; none of the host's proxies is meant for a socket."""

CLAIM = "claim "
"""Begins the name of a claim of dynamic allocation, among ids of devices."""


class Pod(NamedTuple):
    """A container in a pod."""

    namespace: str
    pod: str
    container: str


def held(socket: Path) -> dict[str, set[Pod]]:
    """The containers that hold each device now, by its id; a replica of time slicing or MPS, ``UUID::3``, is its GPU.

    Raises:
        OSError: If the kubelet doesn't answer; says why.
    """
    holders: dict[str, set[Pod]] = defaultdict(set)
    for pod in _list(socket).pod_resources:
        for container in pod.containers:
            ids = [id.partition("::")[0] for some in container.devices for id in some.device_ids]
            claims = [f"{CLAIM}{of.claim_namespace}/{of.claim_name}" for of in container.dynamic_resources]
            for id in (*ids, *claims):
                holders[id].add(Pod(pod.namespace, pod.name, container.name))
    return holders


def _list(socket: Path) -> Any:
    import grpc

    try:  # a channel that is kept waits ever longer before it connects again
        with grpc.insecure_channel(f"unix:{socket.absolute()}", options=_OPTIONS) as channel:
            data = channel.unary_unary("/v1.PodResourcesLister/List")(b"", timeout=TIMEOUT_S)
        return _answer().FromString(data)
    except grpc.RpcError as error:
        why = f"no answer from {shown(socket)}: {' '.join(str(error.details()).split())[:200]}"
        if not socket.exists():
            why = f"there is no socket {shown(socket)}: is this a node, and its folder mounted?"
        elif not os.access(socket, os.R_OK | os.W_OK):
            why = f"{shown(socket)} may not be read: run as root"
        raise OSError(why) from None
    except Exception as error:  # protobuf's, of bytes that are no such message
        raise OSError(f"the answer of {shown(socket)} can't be read: {error}") from None


@cache
def _answer() -> Any:
    """The class of the answer, whose messages are those of ``_MESSAGES``."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for title, fields in _MESSAGES.items():
        made = file.message_type.add(name=title)
        for field in fields:
            label, _, rest = field.partition("=")
            kind = {"type": 11, "type_name": f".v1.{rest[2:]}"} if rest[2:] else {"type": 9}
            made.field.add(name=label, number=int(rest[0]), label=3 if "*" in rest else 1, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.ListPodResourcesResponse"))

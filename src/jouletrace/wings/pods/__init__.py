"""Energy of the pods of a Kubernetes node, by what its kubelet states of their GPUs: ``monitor --pods``."""

from jouletrace.wing import Wing

WING = Wing(
    observers={"pods": "jouletrace.wings.pods.watch"},
    kinds={"pods": "jouletrace.wings.pods.kind"},
    libraries={"grpc": "pods of a Kubernetes node (pip install 'jouletrace[pods]')"},
)

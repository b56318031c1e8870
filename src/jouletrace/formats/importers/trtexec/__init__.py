"""Files of TensorRT's ``trtexec``: its log, and its exported times of layers."""

"""What TensorRT's ``trtexec`` writes: its log, and its exported times, profile and layer information."""

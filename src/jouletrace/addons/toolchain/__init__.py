"""Programs of other makers run for the user (nsys, ncu, trtexec): their output and the power drawn, as one Run."""

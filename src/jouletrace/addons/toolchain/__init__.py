"""Tools of other vendors run for the user (nsys, ncu, trtexec): their output and the measured power, as one Run."""

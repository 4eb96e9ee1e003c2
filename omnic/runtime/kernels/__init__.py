"""Kernels written in Triton, one file for what it computes. Imported on a GPU alone; tests run them in Triton's
interpreter, and compile them for a device that is not there."""

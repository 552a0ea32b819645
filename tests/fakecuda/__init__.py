"""A CUDA driver for tests without a GPU, and kernels it knows; see fakecuda.h for what it does."""

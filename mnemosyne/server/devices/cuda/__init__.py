"""The GPU: one primary context, in which every session has streams, memory and handles of its own.

Hot calls run natively in the lanes (csrc/lane/cuda); here is what sets them up. This package alone
touches the CUDA driver; it must never import torch, sockets or asyncio.
"""

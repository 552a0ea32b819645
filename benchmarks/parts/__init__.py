"""The parts of the benchmark. A part yields its rows as they are measured.

Nothing here may import torch or load CUDA: only the programs that are started do.
"""

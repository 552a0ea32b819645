"""What ``scripts/gpu-check`` checks: a module for each item, small client programs in ``clients``.

An item yields checks; every process it needs comes from its ``Context``. Nothing here may import
torch or load CUDA: only the programs that are started do, and the checker must outlive them.
"""

"""Mnemosyne: several unmodified PyTorch programs share one GPU through one CUDA context."""

__version__ = "0.1.0"

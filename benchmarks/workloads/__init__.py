"""What programs of the benchmark compute: training and generating text, as anybody writes it.

Ordinary PyTorch programs. They know nothing of Mnemosyne and must never import it.
"""

"""What executes a session's calls: ``cpu`` (torch on the CPU), ``cuda`` (the GPU), ``null``.

A device knows memory, streams, kernels and library calls; it knows no sockets and no asyncio.
"""

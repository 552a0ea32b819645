"""The server: a supervisor without CUDA, and the worker process that owns the one CUDA context.

The supervisor accepts clients, gives them slots and holds what must outlive the worker; the worker
runs every session's calls on a device. Nothing here may be imported by ``mnemosyne.api``,
``mnemosyne.protocol`` or ``mnemosyne.cubin``.
"""

"""Writes what cannot import the specification: C++ stubs, export lists and the coverage table.

``python -m mnemosyne.codegen`` rewrites the files, ``--check`` fails when one is stale. It
must never import the server.
"""

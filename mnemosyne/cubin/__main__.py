"""`python -m mnemosyne.cubin`."""

from .cli import app

app(prog_name="python -m mnemosyne.cubin")

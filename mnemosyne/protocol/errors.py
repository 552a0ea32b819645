"""What the protocol package raises."""


class ProtocolError(Exception):
    """The peer sent something that is no legal message; it ends that peer alone."""

"""What tests of several rooms of `tools` ask for."""

from tests.gates import gate

__all__ = ["gate"]

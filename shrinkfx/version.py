"""The version of shrinkfx, from which the metadata of the package is made."""

__version__ = "0.1.0"

"""Checks of custom operators against their declarations."""

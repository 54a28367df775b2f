"""``shrinkfx doctor``: which parts of shrinkfx work in this environment."""

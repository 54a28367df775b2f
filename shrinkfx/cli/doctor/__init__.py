"""``shrinkfx doctor``: test which parts of shrinkfx work in this environment."""

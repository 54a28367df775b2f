"""WHAT A RUN IS ASKED FOR: options, said once. No torch."""

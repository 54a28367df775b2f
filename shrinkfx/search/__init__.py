"""WHICH ONE NEXT: strategies propose, the reducer decides. No torch."""

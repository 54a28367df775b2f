"""WHAT IS SEEN OF A RUN while it goes on: on a terminal, in a notebook. No torch."""

"""What Triton's own interpreter lacks, or does otherwise than a GPU."""

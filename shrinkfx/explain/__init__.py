"""WHERE IT COMES FROM: what a minimum is asked about its failure. No torch."""

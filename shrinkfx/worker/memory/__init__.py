"""Memory errors of generated code, found without the device that it is for."""

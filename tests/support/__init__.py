"""What tests of several folders share: doubles, planted failures, and readers."""

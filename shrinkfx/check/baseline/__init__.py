"""What the unchanged program does, before anything is cut."""

"""Programs that build the image of a worker."""

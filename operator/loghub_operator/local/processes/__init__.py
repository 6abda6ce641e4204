"""Worker processes of `loghub up`: starting, watching and replacing them."""

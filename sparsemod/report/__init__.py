"""Looking at a finished or running search: the HTML page and the pictures for papers."""

"""Templates, scripts and styles of pages and comments, and the code that renders them."""

"""Pages and comments: their templates, scripts and styles, and what puts values into them."""

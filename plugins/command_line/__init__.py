"""What the user may ask for, and the answer to a wrong word."""

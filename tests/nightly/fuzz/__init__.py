"""Every reader of files and messages that others may have written, and what attacks them."""

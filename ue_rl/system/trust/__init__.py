"""Files that strangers may have written: what they may run here, and who made them."""

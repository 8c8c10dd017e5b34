"""What the numbers of a row mean: trees of observations and actions."""

"""What both sides say to each other: neither a game nor a trainer is known here."""

"""The client's transports over TCP: lines of text on one shared socket or on one socket per env."""

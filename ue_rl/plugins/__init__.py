"""The annex: what not everybody needs. Nothing else imports it; entry points name it (setup.cfg)."""

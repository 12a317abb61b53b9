"""How bytes become messages; no policy here."""

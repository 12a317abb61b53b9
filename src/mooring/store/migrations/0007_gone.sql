-- Variants of which something is stored and which no plan had when the daemon last started, with the time at which that
-- was noticed first.
CREATE TABLE gone (
    variant TEXT PRIMARY KEY,
    since REAL NOT NULL
) WITHOUT ROWID;
